"""Calls to an API server that asks for a pause, answers slowly or oddly, or may not be written to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kubernetes.client
import pytest

from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Kube, NotLeading, authorization
from headrace_operator.kubernetes.pace import Budget, Priority

PATH = "/api/v1/namespaces/ns/secrets/a"


class Server:
    """Gives the answers of ``script`` one after the other, the last one for ever: status, body, Retry-After."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, Any], str]] = [(200, {"kind": "Secret"}, "")]
        self.seen: list[tuple[str, str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
                status, body, pause = server.script.pop(0) if len(server.script) > 1 else server.script[0]
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if pause:
                    self.send_header("Retry-After", pause)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                return None

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def client(url: str, time: Time | None = None, token: str = "") -> Kube:
    def configure() -> kubernetes.client.Configuration:
        configuration = kubernetes.client.Configuration(host=url)
        configuration.retries = False
        if token:
            configuration.api_key["authorization"] = f"Bearer {token}"
        return configuration

    budget = None if time is None else Budget(50, 100, time, time.sleep)
    return Kube(configure, budget=budget)


async def test_a_server_that_is_overloaded_is_asked_again_after_the_pause_it_wants(server: Server) -> None:
    time = Time()
    kube = client(server.url, time)
    server.script = [(429, {}, "7"), (429, {}, ""), (200, {"kind": "Secret"}, "")]
    assert await kube.get(PATH) == {"kind": "Secret"}
    assert time.slept == [7, 1]
    server.script = [(429, {"message": "too many"}, "900")]
    with pytest.raises(ApiError, match="429 too many") as refused:
        await kube.get(PATH)
    assert refused.value.status == 429
    assert max(time.slept) == 30
    await kube.close()


async def test_a_process_that_does_not_lead_reads_and_writes_nothing(server: Server) -> None:
    kube = client(server.url)
    kube.may_write = lambda: False
    assert await kube.find(PATH) == {"kind": "Secret"}
    for write in (
        kube.create(PATH, {}, manager="x"),
        kube.merge(PATH, {}, manager="x", priority=Priority.LOW),
        kube.apply(PATH, {}, manager="x"),
        kube.delete(PATH, uid="u"),
    ):
        with pytest.raises(NotLeading, match="this process does not lead"):
            await write
    assert [method for method, _, _ in server.seen] == ["GET"]
    await kube.close()


async def test_the_right_to_write_is_asked_for_right_before_each_write(server: Server) -> None:
    kube = client(server.url)
    answers = iter([True, False])
    kube.may_write = lambda: next(answers)
    await kube.merge(PATH, {}, manager="x")
    with pytest.raises(NotLeading):
        await kube.merge(PATH, {}, manager="x")
    await kube.close()


async def test_a_field_that_does_not_exist_is_the_callers_mistake(server: Server) -> None:
    kube = client(server.url)
    text = "failed to create typed patch object (ns/a; apps/v1, Kind=Deployment): .spec.x: field not declared in schema"
    server.script = [(500, {"message": text}, "")]
    with pytest.raises(ApiError, match="field not declared") as refused:
        await kube.apply(PATH, {}, manager="x")
    assert refused.value.status == 422
    server.script = [(500, {"message": "etcd is unwell"}, "")]
    with pytest.raises(ApiError) as failed:
        await kube.apply(PATH, {}, manager="x")
    assert failed.value.status == 500
    await kube.close()


async def test_no_answer_is_no_refusal_and_nothing_is_repeated(server: Server) -> None:
    kube = client(server.url)
    server.stop()
    server.stop = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ApiUnavailable, match="POST /api/v1/namespaces/ns/secrets/a: "):
        await kube.create(PATH, {}, manager="x")
    assert server.seen == []
    await kube.close()


async def test_a_token_is_sent_and_read_anew_when_it_is_refused(server: Server) -> None:
    kube = client(server.url, token="t-1")
    server.script = [(401, {"message": "expired"}, ""), (200, {"kind": "Secret"}, "")]
    assert await kube.get(PATH) == {"kind": "Secret"}
    assert [token for _, _, token in server.seen] == ["Bearer t-1"] * 2
    await kube.close()


def test_headers_of_both_releases_of_the_client_are_found() -> None:
    configuration = kubernetes.client.Configuration(host="http://x")
    assert authorization(configuration) == {}
    configuration.api_key["authorization"] = "Bearer t"
    assert {name.lower(): value for name, value in authorization(configuration).items()} == {
        "authorization": "Bearer t"
    }
