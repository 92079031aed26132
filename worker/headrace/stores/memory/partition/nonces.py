"""The calls that one partition in memory has seen, so that none is applied twice."""

from __future__ import annotations

from headrace.stores.bounds import NONCE_TTL_MS

TRIMMED = 32


class Nonces:
    """Nonce of a call -> when it was seen. Old ones go while new calls come; all of them, where none comes for 10 s."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self._until = 0

    def knows(self, nonce: bytes, now: int) -> bool:
        """Whether the call was seen."""
        return nonce in self._seen and now < self._until

    def known(self, now: int) -> dict[bytes, int]:
        """Return all that are known, with the time (ms) when each was seen."""
        return dict(self._seen) if now < self._until else {}

    def heard_again(self, now: int) -> None:
        """Take note that a call was sent again."""
        self._until = now + NONCE_TTL_MS

    def remember(self, nonce: bytes, now: int, *, trim: bool = True) -> None:
        """Take note of a call. ``trim``: some of the old ones go."""
        self._seen = self.known(now)
        self._seen[nonce] = now
        self._until = now + NONCE_TTL_MS
        if trim:
            old = sorted((at, seen) for seen, at in self._seen.items() if at <= now - NONCE_TTL_MS)
            for _, seen in old[:TRIMMED]:
                del self._seen[seen]
