"""What a worker process shows to those who watch it: /metrics, and logs as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headrace.stores.redis import RedisStore
from tests.integration.worker.support import QUEUE, eventually, put, queue
from tests.services.redis import RedisServers

APPLICATION = """
import logging
from headrace import App

app = App()

@app.handler("greet")
async def greet(ctx, payload):
    logging.getLogger("greetings").info("hello %s", payload)
"""


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read().decode())


async def test_a_worker_process_shows_metrics_and_writes_json(
    tmp_path: Path, prefix: str, redis_servers: RedisServers
) -> None:
    url = redis_servers.get("valkey").url
    store = RedisStore(url, prefix=prefix)
    ids = await put(await queue(store), "greet", range(5))
    (tmp_path / "greetings.py").write_text(APPLICATION)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        f"--queue={QUEUE}",
        "--health-host=127.0.0.1",
        f"--health-port={port}",
        "--metrics=prometheus",
        "--log-format=json",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "worker", "run", "greetings:app", *options],
        cwd=tmp_path,
        env=dict(os.environ)
        | {"HEADRACE_REDIS_URL": url, "HEADRACE_PREFIX": prefix, "HEADRACE_HEALTH_HOST": "127.0.0.1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        async def counted() -> bool:
            try:
                shown = await asyncio.to_thread(fetch, port)
            except OSError:
                return False
            labels = {"queue": QUEUE, "type": "greet", "outcome": "succeeded"}
            return any(
                (sample.name, sample.labels, sample.value) == ("headrace_jobs_finished_total", labels, 5)
                for family in text_string_to_metric_families(shown)
                for sample in family.samples
            )

        await eventually(counted)
        process.terminate()
        _, written = await asyncio.to_thread(process.communicate, timeout=30)
        assert process.returncode == 0, written
    finally:
        process.kill()
        process.communicate()
        await store.close()
    lines = [json.loads(line) for line in written.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    said = {
        line["job_id"]: (line["message"], line["queue"], line["type"], line["attempt"])
        for line in lines
        if "job_id" in line
    }
    assert said == {id: (f"hello {number}", QUEUE, "greet", 0) for number, id in enumerate(ids)}
    assert "has ended" in lines[-1]["message"]
