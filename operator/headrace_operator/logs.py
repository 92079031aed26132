"""Log lines of the operator: text for people, or one JSON object per line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from headrace_operator.settings import OperatorSettings


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging(settings: OperatorSettings) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # Its own progress is not ours, and its warnings about signals and permissions are.
    for name in ("kopf", "aiohttp.access", "urllib3"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
