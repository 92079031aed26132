"""What a lock backend may answer instead of a result. Every backend turns its own errors into these three."""

from __future__ import annotations

from headrace.errors import HeadraceError


class LockError(HeadraceError):
    """Base of the errors of lock backends; the text names the backend and the lock, never a credential."""


class Conflict(LockError):
    """A definitive no: the record is not at the version that the caller named, or exists already, or is gone."""


class Unavailable(LockError):
    """No definitive answer.

    ``ambiguous``: the write may have been applied, now or later. ``retry_after``: seconds that the server asked to
    wait; None if it did not.
    """

    def __init__(self, message: str, *, ambiguous: bool, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.ambiguous = ambiguous
        self.retry_after = retry_after


class Forbidden(LockError):
    """The backend is not for us: missing rights, refused credentials, no such namespace. Waiting does not help."""
