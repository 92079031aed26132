"""Service-account tokens of a Pod, asked for with TokenRequest and renewed before they expire."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from tests.cluster.node.api import Api
from tests.cluster.rest import Object

# A kubelet renews when four fifths of the life have passed.
RENEW_AT = 0.8


@dataclass(frozen=True)
class Token:
    """A token and the moment from which it should be renewed."""

    value: str
    renew: datetime.datetime

    def __repr__(self) -> str:
        return f"Token(renew={self.renew})"


class Tokens:
    """The tokens of one Pod, one per (audience, life) that its volumes ask for."""

    def __init__(self, api: Api, pod: Object) -> None:
        self._api = api
        self._pod = pod
        self._known: dict[tuple[str, int], Token] = {}

    async def get(self, source: Object, now: datetime.datetime) -> Token:
        """The token for a ``serviceAccountToken`` source, requested or renewed if it is time.

        Raises :class:`ApiError` or one of ``UNREACHABLE``; the token known before stays valid for a while then.
        """
        key = (source.get("audience", ""), int(source.get("expirationSeconds", 3600)))
        known = self._known.get(key)
        if known is not None and now < known.renew:
            return known
        metadata, account = self._pod["metadata"], self._pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec: Object = {"expirationSeconds": key[1], "boundObjectRef": bound}
        if key[0]:
            spec["audiences"] = [key[0]]
        answer = await self._api.request("POST", path, {"spec": spec})
        expires = datetime.datetime.fromisoformat(answer["status"]["expirationTimestamp"])
        token = Token(answer["status"]["token"], now + (expires - now) * RENEW_AT)
        self._known[key] = token
        return token

    def known(self, source: Object) -> str:
        """The value got last. Raises KeyError if it was never asked for."""
        return self._known[(source.get("audience", ""), int(source.get("expirationSeconds", 3600)))].value

    def renew(self) -> datetime.datetime | None:
        """When the first of them is due, None without tokens."""
        return min((token.renew for token in self._known.values()), default=None)
