"""Memory behaves like a server, and Redis like Valkey, in everything that they answer and hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.stores.memory import MemoryStore
from tests.cluster.guard import Guard
from tests.conformance.twins.jobs import JobRules
from tests.conformance.twins.run import OneVersion, WholeStore, run
from tests.conformance.witness import steps_of_a_store
from tests.services.redis import Flavour, RedisServer, flavours


@pytest.fixture(scope="module", params=flavours())
def own_server(request: pytest.FixtureRequest, process_guard: Guard) -> Iterator[RedisServer]:
    flavour: Flavour = request.param
    with RedisServer(flavour, guard=process_guard) as server:
        yield server


SIZES = {"redis": 30, "valkey": 10}
"""Examples by server. What is to be found is found by one of them; the other shows that it is no other server."""

NOT_COMPARED = {
    "check": "of the server, which memory has not: test_server.py",
    "facts": "the same",
    "memory": "the same",
    "clone": "it opens connections: test_server.py",
    "close": "it closes them",
    "hints_may_be_lost": "of a Cluster: test_cut_connections.py",
}
"""What a store offers and no command of the machine takes, with the reason."""


@pytest.mark.parametrize("machine", [WholeStore, OneVersion])
def test_memory_holds_and_answers_what_a_server_does(own_server: RedisServer, machine: type[JobRules]) -> None:
    examples = SIZES[own_server.flavour] // (1 + (machine is OneVersion))
    taken = run(machine, own_server, examples=examples, steps=50)
    if machine is WholeStore and own_server.flavour == "redis":
        missing = steps_of_a_store() - set(taken)
        assert missing == set(NOT_COMPARED), "give it a command, or say why it has none"


def test_a_memory_that_is_a_millisecond_late_is_found(own_server: RedisServer) -> None:
    """Else the comparison would see nothing."""

    class Late(WholeStore):
        def __init__(self) -> None:
            super().__init__()
            self.memory = MemoryStore(lambda: self.clock() + 1)

    with pytest.raises(AssertionError, match="memory"):
        run(Late, own_server, examples=1, steps=20)
