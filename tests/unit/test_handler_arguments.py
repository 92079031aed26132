"""Annotated payloads and injected dependencies: what is found out at registration, and how a wrong payload is told."""

from __future__ import annotations

import enum
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from headrace import App, Context, InvalidInput, InvalidPayload
from headrace.arguments import validator
from headrace.envelope import decode_record, encode_body

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes


class Address(BaseModel):
    street: str
    number: int


class Person(BaseModel):
    name: str
    born: datetime
    address: Address
    tags: list[int] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    id: uuid.UUID
    at: datetime


class Aliased(BaseModel):
    to: str = Field(alias="To")


@dataclass
class Point:
    x: int
    at: datetime


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


class Database: ...


NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


def stored(payload: Any) -> Any:
    """What a handler gets of a payload: packed, and read again."""
    record = bytes(16) + encode_body("send", payload)
    return decode_record(b"id", record, b"", queue="q", version=1, partition=0).payload


def refused(annotation: Any, payload: Any) -> str:
    with pytest.raises(InvalidPayload) as caught:
        validator("'send'", annotation)(payload)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return str(caught.value)


# ---- payloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (Person, Person(name="Ada", born=NOW, address=Address(street="Row", number=1), tags=[3])),
        (Strict, Strict(id=uuid.UUID(int=7), at=NOW)),
        (Aliased, Aliased(To="ada@example.com")),
        (Point, Point(1, NOW)),
        (list[Point], [Point(1, NOW)]),
        (dict[str, Address], {"home": Address(street="Row", number=1)}),
        (int, 7),
        (bytes, b"\x00raw"),
        (str | None, None),
    ],
    ids=str,
)
def test_what_a_producer_is_given_is_what_a_handler_gets(annotation: Any, payload: Any) -> None:
    assert validator("'send'", annotation)(stored(payload)) == payload


@pytest.mark.parametrize(
    ("annotation", "payload", "made"),
    [
        (dict[str, Colour], {"colour": "red"}, {"colour": Colour.RED}),
        (Pair, [1, "b"], Pair(1, "b")),
        (datetime, "2030-01-31T12:00:00Z", NOW),
        (Address, b'{"street": "Row", "number": 1}', Address(street="Row", number=1)),
    ],
    ids=str,
)
def test_plain_types_are_made_of_json_values(annotation: Any, payload: Any, made: Any) -> None:
    assert validator("'send'", annotation)(payload) == made


def test_a_payload_that_does_not_fit_is_told_by_its_fields() -> None:
    payload = {"name": 5, "born": "secret", "address": {"number": "secret"}, "tags": [1, "secret"]}
    assert refused(Person, payload) == (
        "invalid payload: name (string_type), born (datetime_from_date_parsing), address.street (missing), "
        "address.number (int_parsing), tags.1 (int_parsing)"
    )
    assert refused(Strict, {"id": str(uuid.UUID(int=7)), "at": "secret", "more": 1}) == (
        "invalid payload: at (datetime_parsing), more (extra_forbidden)"
    )
    assert refused(int, "secret") == "invalid payload: payload (int_parsing)"
    assert refused(Address, b"secret") == "invalid payload: payload (json_invalid)"
    assert refused(int, {1j: "no JSON"}) == "invalid payload: payload (int_type)"


def test_no_value_of_a_payload_is_told_whatever_a_validator_says() -> None:
    class Card(BaseModel):
        number: str

        @field_validator("number")
        @classmethod
        def _known(cls, value: str) -> str:
            raise ValueError(f"{value} is no card")

    assert refused(Card, {"number": "4111-secret"}) == "invalid payload: number (value_error)"


def test_many_problems_are_counted() -> None:
    told = refused(list[int], ["x"] * 25)
    assert told.count("(int_parsing)") == 10
    assert told.endswith("9 (int_parsing) and 15 more")


def test_what_is_no_json_is_still_refused_by_the_producer() -> None:
    for value in (object(), {1, 2}, NOW, Point, {"at": NOW}, Person):
        with pytest.raises(InvalidInput, match=r"payload: cannot be written as JSON .*; give JSON values, a model or"):
            encode_body("send", value)


# ---- registration ---------------------------------------------------------------------------------------------------


def test_only_annotated_payloads_are_checked() -> None:
    app = App()
    app.handler("none")(lambda ctx, payload: None)

    @app.handler("any")
    async def takes_any(ctx: Context, payload: Any) -> None: ...

    @app.handler("object")
    async def takes_object(ctx: Context, payload: object) -> None: ...

    @app.handler("local")
    async def takes_local(ctx: Context, payload: Address) -> None: ...

    checked = {type: handler.arguments.validate is not None for type, handler in app.handlers.items()}
    assert checked == {"none": False, "any": False, "object": False, "local": True}


def test_annotations_may_name_what_is_local_where_the_handler_is_registered() -> None:
    class Local(BaseModel):
        n: int

    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: list[Local]) -> None: ...

    validate = app.handlers["send"].arguments.validate
    assert validate is not None
    assert validate([{"n": "5"}]) == [Local(n=5)]


def test_an_annotation_that_nobody_can_look_up_is_refused_at_registration() -> None:
    app = App()
    with pytest.raises(InvalidInput, match=r"payload: of 'send' is annotated with OnlyForTypes, .* not only for type"):

        @app.handler("send")
        async def send(ctx: Context, payload: OnlyForTypes) -> None: ...

    assert app.handlers == {}


@pytest.mark.parametrize("kind", [Database, list[Database]])
def test_a_type_that_cannot_be_checked_is_refused_at_registration(kind: Any) -> None:
    def send(ctx: Context, payload: Any) -> None: ...

    send.__annotations__["payload"] = kind
    with pytest.raises(InvalidInput, match=r"payload: of 'send' is annotated with .*Database.*cannot be checked"):
        App().handler("send")(send)


def test_annotations_of_objects_and_methods_are_found_too() -> None:
    class Sender:
        async def __call__(self, ctx: Context, payload: Address) -> None: ...

        def method(self, ctx: Context, payload: Address) -> None: ...

    app = App()
    app.handler("object")(Sender())
    app.handler("method")(Sender().method)
    assert all(handler.arguments.validate is not None for handler in app.handlers.values())


# ---- dependencies ---------------------------------------------------------------------------------------------------


def with_database() -> App:
    app = App()

    @app.dependency
    async def db() -> AsyncIterator[Database]:
        yield Database()

    @app.dependency("limit")
    def some_limit() -> int:
        return 5

    return app


def test_dependencies_are_found_by_name_and_else_by_type() -> None:
    app = with_database()

    @app.handler("name")
    async def by_name(ctx: Context, payload: Any, db: Any) -> None: ...

    @app.handler("type")
    async def by_type(ctx: Context, payload: Any, *, connection: Database, limit: int = 3) -> None: ...

    @app.handler("default")
    async def with_default(ctx: Context, payload: Any, other: int = 3) -> None: ...

    assert {type: handler.arguments.injected for type, handler in app.handlers.items()} == {
        "name": {"db": "db"},
        "type": {"connection": "db", "limit": "limit"},
        "default": {},
    }


def test_the_types_of_dependencies_are_read_from_what_they_give() -> None:
    app = App()

    @app.dependency
    def from_generator() -> Iterator[int]:
        yield 1

    @app.dependency
    @asynccontextmanager
    async def from_manager() -> AsyncIterator[str]:
        yield "a"

    @app.dependency
    @contextmanager
    def from_plain_manager() -> Iterator[bytes]:
        yield b""

    @app.dependency
    async def from_coroutine() -> float:
        return 1.0

    @app.dependency
    def unannotated(): ...  # type: ignore[no-untyped-def]

    types = {name: each.type for name, each in app.dependencies.items()}
    assert types == {
        "from_generator": int,
        "from_manager": str,
        "from_plain_manager": bytes,
        "from_coroutine": float,
        "unannotated": None,
    }


def test_a_parameter_that_is_no_dependency_is_refused_at_registration() -> None:
    app = with_database()
    with pytest.raises(InvalidInput, match=r"cache: of 'send' cannot be given: no dependency has its name or its type"):

        @app.handler("send")
        async def send(ctx: Context, payload: Any, cache: Sequence[int]) -> None: ...

    @app.dependency
    def another() -> Database:
        return Database()

    with pytest.raises(InvalidInput, match="base: of 'send' cannot be given: db and another are of its type"):

        @app.handler("send")
        async def send_again(ctx: Context, payload: Any, base: Database) -> None: ...

    with pytest.raises(InvalidInput, match="cycle: of dependency 'cycle' cannot be given: no dependency"):

        @app.dependency
        def cycle(cycle: Any) -> None: ...

    with pytest.raises(InvalidInput, match="'db' is registered already"):
        app.dependency("db")(another)
    with pytest.raises(InvalidInput, match="'no name' cannot be the name of a parameter"):
        app.dependency("no name")(another)
    assert app.handlers == {}


def test_dependencies_take_dependencies() -> None:
    app = with_database()

    @app.dependency
    async def users(db: Any, most: int) -> list[str]:
        return []

    assert app.dependencies["users"].injected == {"db": "db", "most": "limit"}


def test_a_dependency_that_is_not_registered_cannot_be_overridden() -> None:
    app = with_database()
    with pytest.raises(InvalidInput, match=r"'data' is not registered \(known: db, limit\)"):
        app.overriding(data=1)
    assert app.overriding(limit=1).dependencies["limit"].type is int


# ---- middleware -----------------------------------------------------------------------------------------------------


def test_middleware_of_the_wrong_shape_is_refused_at_registration() -> None:
    app = App()

    def plain(ctx: Context, payload: Any, call_next: Any) -> Any: ...

    async def short(ctx: Context, call_next: Any) -> Any: ...

    with pytest.raises(InvalidInput, match="middleware: plain is not an async def"):
        app.middleware(plain)
    with pytest.raises(InvalidInput, match="middleware: short cannot be called as"):
        app.middleware(short)  # type: ignore[type-var]
    app.freeze()

    async def late(ctx: Context, payload: Any, call_next: Any) -> Any: ...

    with pytest.raises(InvalidInput, match="'late' is registered after a worker has started"):
        app.middleware(late)
    with pytest.raises(InvalidInput, match="'late' is registered after a worker has started"):
        app.dependency("late")(lambda: None)
    assert app.middlewares == ()
