"""Structured logs: one JSON object per line, with the job that was running where the line was written."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

from headrace.context import current_run, log_fields

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class RunFilter(logging.Filter):
    """Adds ``job_id``, ``queue``, ``type`` and ``attempt`` to every record that is written inside a handler.

    Attach it to a logging handler, whatever its formatter. What a record has already is kept.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record; True always."""
        if (run := current_run()) is not None:
            for name, value in log_fields(run.job).items():
                if name not in vars(record):
                    setattr(record, name, value)
        return True


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time (UTC), level, logger, message, what was given as ``extra``, error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a value that JSON cannot hold is written as text."""
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in found}
        if record.exc_info and record.exc_info[0] is not None:
            found["error"] = self.formatException(record.exc_info)
        elif record.exc_text:
            found["error"] = record.exc_text
        if record.stack_info:
            found["stack"] = record.stack_info
        return json.dumps(found, default=str, ensure_ascii=False)


def configure_logging(form: str, level: str, stream: TextIO) -> None:
    """Let the root logger write ``form`` (``text`` or ``json``) from ``level`` on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
    handler.addFilter(RunFilter())
    logging.basicConfig(level=level, handlers=[handler])
