"""Registration of handlers, and how an App is found by name."""

from __future__ import annotations

import functools
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from headrace import App, Context, InvalidInput, RetryPolicy, load_app


async def on_loop(ctx: Context, payload: Any) -> None: ...


def plain(ctx: Context, payload: Any) -> None: ...


def test_the_decorator_returns_the_function_and_keeps_what_it_was_told() -> None:
    app = App()
    policy = RetryPolicy(max_retries=1)
    assert app.handler("send", timeout=2.5, retry=policy)(on_loop) is on_loop
    app.handler("count")(plain)
    send, count = app.handlers["send"], app.handlers["count"]
    assert (send.type, send.call, send.is_async, send.timeout_ms, send.retry) == ("send", on_loop, True, 2500, policy)
    assert (count.is_async, count.timeout_ms, count.retry) == (False, None, None)


def test_objects_and_partials_are_recognised_by_what_they_call() -> None:
    class Asynchronous:
        async def __call__(self, ctx: Context, payload: Any) -> None: ...

    class Plain:
        def __call__(self, ctx: Context, payload: Any) -> None: ...

        async def method(self, ctx: Context, payload: Any) -> None: ...

    app = App()
    app.handler("a")(Asynchronous())
    app.handler("b")(Plain())
    app.handler("c")(Plain().method)
    app.handler("d")(functools.partial(on_loop))
    app.handler("e")(functools.partial(plain))
    assert {type: handler.is_async for type, handler in app.handlers.items()} == {
        "a": True,
        "b": False,
        "c": True,
        "d": True,
        "e": False,
    }


def test_a_decorator_without_parentheses_is_refused_with_what_to_write() -> None:
    app: Any = App()
    with pytest.raises(InvalidInput, match=r'write @app\.handler\("plain"\)'):
        app.handler(plain)
    with pytest.raises(InvalidInput, match="decorated without it"):
        app.handler(functools.partial(plain))
    assert app.handlers == {}


def nothing() -> None: ...


def one(payload: Any) -> None: ...


def named(*, ctx: Context, payload: Any) -> None: ...


async def one_async(ctx: Context) -> None: ...


bound: Any = functools.partial(cast(Any, plain), 1)


@pytest.mark.parametrize("function", [nothing, one, named, one_async, bound], ids=str)
def test_a_function_that_cannot_take_context_and_payload_is_refused(function: Any) -> None:
    app = App()
    with pytest.raises(InvalidInput, match=r"of 'send' cannot be called as function\(ctx, payload\)"):
        app.handler("send")(function)
    assert app.handlers == {}


def test_functions_that_take_more_than_they_need_are_taken() -> None:
    def anything(*given: Any, **more: Any) -> None: ...

    def with_default(ctx: Context, payload: Any, tries: int = 3) -> None: ...

    functions: list[Any] = [anything, with_default, print, max]
    app = App()
    for number, function in enumerate(functions):
        app.handler(f"type-{number}")(function)
    assert len(app.handlers) == len(functions)


@pytest.mark.parametrize("timeout", ["5", True])
def test_a_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout: of 'send' is"):
        App().handler("send", timeout=timeout)(plain)


async def later(failed_runs: int, error: BaseException) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("retry", "problem"),
    [
        (5, "of 'send' is 5"),
        (RetryPolicy, "is <class"),
        (later, "is an async def"),
        (lambda runs: 1.0, r"cannot be called as function\(failed_runs, error\)"),
        (lambda runs, error, more: 1.0, "cannot be called as"),
    ],
)
def test_what_is_neither_a_policy_nor_a_function_that_decides_is_refused(retry: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        App().handler("send", retry=retry)(on_loop)
    assert refused.value.field == "retry"


def test_a_second_handler_of_a_type_is_refused() -> None:
    app = App()
    app.handler("send")(on_loop)
    with pytest.raises(InvalidInput, match="'send' has a handler already"):
        app.handler("send")(plain)
    assert app.handlers["send"].call is on_loop


@pytest.mark.parametrize("type", ["", "x" * 256, "ä" * 128, 7])
def test_what_is_no_job_type_is_refused(type: Any) -> None:
    with pytest.raises(InvalidInput, match="is not a job type"):
        App().handler(type)(on_loop)


@pytest.mark.parametrize("timeout", [0, -1, 0.0001, 1e9])
def test_a_timeout_out_of_range_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidInput, match="timeout: of 'send'"):
        App().handler("send", timeout=timeout)(on_loop)


def test_generators_and_values_are_refused() -> None:
    def generates(ctx: Context, payload: Any) -> Any:
        yield 1

    async def generates_async(ctx: Context, payload: Any) -> Any:
        yield 1

    with pytest.raises(InvalidInput, match="is a generator"):
        App().handler("send")(generates)
    with pytest.raises(InvalidInput, match="is a generator"):
        App().handler("send")(generates_async)
    with pytest.raises(InvalidInput, match="is not callable"):
        App().handler("send")("name")  # type: ignore[type-var]


def test_M18_registration_after_the_start_is_refused() -> None:
    app = App()
    app.handler("send")(on_loop)
    handlers = app.freeze()
    with pytest.raises(InvalidInput, match="'late' is registered after a worker has started"):
        app.handler("late")(on_loop)
    assert set(handlers) == {"send"}
    with pytest.raises(TypeError):
        handlers["late"] = handlers["send"]  # type: ignore[index]


def test_M18_registration_from_many_threads_loses_and_doubles_nothing() -> None:
    app = App()
    refused: list[str] = []
    ready = threading.Barrier(8)

    def register() -> None:
        ready.wait()
        for number in range(200):
            try:
                app.handler(f"type-{number}")(on_loop)
            except InvalidInput as error:
                refused.append(str(error))

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(app.handlers) == 200
    assert len(refused) == 7 * 200


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "emails_for_test.py").write_text(
        "from headrace import App\napp = App()\nclass Holder:\n    inner = App()\nnothing = 1\n"
    )
    (tmp_path / "broken_for_test.py").write_text("import no_such_module_for_test\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield_name = "emails_for_test"
    sys.modules.pop(yield_name, None)
    return yield_name


def test_an_app_is_loaded_by_name(module: str) -> None:
    loaded = load_app(f"{module}:app")
    assert isinstance(loaded, App)
    assert load_app(f"{module}:app") is loaded
    assert isinstance(load_app(f"{module}:Holder.inner"), App)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("emails_for_test", "is not module:attribute"),
        (":app", "is not module:attribute"),
        ("emails_for_test:", "is not module:attribute"),
        ("emails_for_test:missing", "is not a headrace.App; assign one: missing = App()"),
        ("emails_for_test:nothing", "is not a headrace.App"),
        ("no_such_package_for_test.handlers:app", "module 'no_such_package_for_test' is not found"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(module: str, name: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_app(name)
    assert message in str(refused.value)


def test_an_error_inside_the_module_comes_through(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_for_test"):
        load_app("broken_for_test:app")
