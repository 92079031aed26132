"""What an actor of the model is: a value that says where it stands, and a role that says what it does next.

A role never touches the store. It proposes calls of Store methods; the world applies one of them and hands back the
reply, loses the reply, delays the request, or lets the actor crash. So every interleaving, loss and crash is explored
without the role knowing of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, Protocol, TypeVar

from tests.simulation.values import Call, Reply, Store

Local = TypeVar("Local", bound=Hashable)


class Move(NamedTuple):
    """An intended call; ``local`` is where the actor stands while it waits for the reply."""

    local: Hashable
    call: Call


class Role(Protocol[Local]):
    """The behaviour of one actor. Its local state is immutable and tells everything it remembers."""

    name: str

    def start(self) -> Local:
        """Return the initial local state."""
        ...

    def moves(self, local: Local, store: Store) -> Iterable[Move]:
        """Propose calls. ``store`` is for leaving out calls that would change nothing, never for deciding."""
        ...

    def reply(self, local: Local, call: Call, reply: Reply) -> Local:
        """Return the state after the reply."""
        ...

    def unknown(self, local: Local, call: Call) -> Local | None:
        """Return the state after a call whose outcome stays unknown; None if the role has no such case."""
        ...

    def crash(self, local: Local) -> Local | None:
        """Return the state after a crash; None if it would change nothing."""
        ...
