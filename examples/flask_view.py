"""A Flask view that enqueues: ``HEADRACE_REDIS_URL=redis://127.0.0.1:6379/0 flask --app examples.flask_view run``.

The worker is a process of its own: ``headrace worker run examples.handlers:app --queue greetings``.
"""

import os
from functools import cache

from flask import Flask, request
from flask.typing import ResponseReturnValue

from headrace import SyncProducer

web = Flask(__name__)


@cache
def producer() -> SyncProducer:
    """Made at the first request, hence after the server has forked: one per process, shared by its threads."""
    return SyncProducer(os.environ["HEADRACE_REDIS_URL"])


@web.post("/greetings")
def ask() -> ResponseReturnValue:
    name = request.form["name"]
    job = producer().enqueue("greetings", "greet", {"name": name}, delay=float(request.form.get("delay", 0)))
    return {"id": job.id}, 202
