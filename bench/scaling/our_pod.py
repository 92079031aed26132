"""The program of our worker Pods: ``bench.scaling.pods``, with word that it has been loaded."""

from __future__ import annotations

import os

from bench.scaling.pods import app, say_loaded
from headrace.connection import ConnectionSettings

__all__ = ["app"]

say_loaded(ConnectionSettings().store_url(), os.environ["HEADRACE_QUEUES"])
