"""Kubeconfig documents, as values."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from tests.cluster.certificates import Credential


def with_certificate(server: str, authority: bytes, credential: Credential, *, namespace: str = "default") -> str:
    """A kubeconfig whose user is a client certificate; everything is inline."""
    user = {
        "client-certificate-data": base64.b64encode(credential.certificate).decode(),
        "client-key-data": base64.b64encode(credential.key).decode(),
    }
    return _document(server, authority, user, namespace)


def with_token(server: str, authority: bytes, token: str, token_file: str, *, namespace: str) -> str:
    """A kubeconfig whose user is a bearer token.

    The token stands inline and as a file: clients that know ``tokenFile`` read renewed tokens from it and prefer it,
    the others take the inline one.
    """
    return _document(server, authority, {"token": token, "tokenFile": token_file}, namespace)


def _document(server: str, authority: bytes, user: dict[str, str], namespace: str) -> str:
    name = "headrace-local"
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
    }
    return yaml.safe_dump(document, sort_keys=False)
