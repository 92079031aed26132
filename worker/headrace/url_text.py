"""The URL of a store, as it is handed over: it may hold a password, so nothing of what is wrong is ever shown."""

from __future__ import annotations

from headrace.errors import InvalidInput


def url_text(url: object) -> str:
    """Return a URL that is text. Raises InvalidInput, which names the type only: bytes may hold a password, too."""
    if isinstance(url, str):
        return url
    # Often a variable of the environment that is not set.
    shown = "None" if url is None else type(url).__name__
    raise InvalidInput("store URL", f"is {shown} and not text", "give a URL such as redis://127.0.0.1:6379/0")
