"""Sets the clock of a whole process wrong, before anything else is imported: TEST_CLOCK_AHEAD seconds ahead.

Everything that reads the time of day in Python gets it; monotonic clocks are those of the machine.
"""

import datetime
import os
import time
from typing import Any

ahead = int(os.environ.get("TEST_CLOCK_AHEAD", "0"))
if ahead:
    real_time, real_time_ns, real_datetime = time.time, time.time_ns, datetime.datetime

    class WrongDatetime(real_datetime):  # type: ignore[valid-type, misc]
        """Knows a wrong now."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(real_time() + ahead, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    time.time = lambda: real_time() + ahead
    time.time_ns = lambda: real_time_ns() + ahead * 1_000_000_000
    datetime.datetime = WrongDatetime  # type: ignore[misc]
