"""The calls that one partition in memory has seen, so that none is applied twice."""

from __future__ import annotations

from headrace.stores.bounds import NONCE_TTL_MS


class Nonces:
    """Nonce of a call -> when it was seen. Old ones go while new ones come."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    def __contains__(self, nonce: bytes) -> bool:
        return nonce in self._seen

    def recent(self, now: int) -> bool:
        """Whether there is a call that may be sent again."""
        return any(at > now - NONCE_TTL_MS for at in self._seen.values())

    def remember(self, nonce: bytes, now: int) -> None:
        """Take note of a call."""
        self._seen[nonce] = now
        for old, at in list(self._seen.items())[:32]:
            if at <= now - NONCE_TTL_MS:
                del self._seen[old]
