"""What the workers run: measure one source file and store the result."""

from __future__ import annotations

import hashlib
import zlib
from functools import cache

from examples.demo.results import Results
from headrace import App, Context
from headrace.connection import ConnectionSettings

app = App()


@cache
def results(queue: str) -> Results:
    """Return this worker process's own connection to the results; they lie beside the queue."""
    return Results(ConnectionSettings().store_url(), queue)


@app.handler("measure")
async def measure(ctx: Context, payload: bytes) -> None:
    """Measure a source file; the job's id is its path, the payload its compressed text."""
    text = zlib.decompress(payload)
    job = ctx.job
    result = {
        "size": len(text),
        "lines": text.count(b"\n") + (text != b"" and not text.endswith(b"\n")),
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    await results(job.queue).record(job.id, result, job.version)
