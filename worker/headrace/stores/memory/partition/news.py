"""What the steps on one partition in memory added, for the hints."""

from __future__ import annotations

from typing import NamedTuple


class News(NamedTuple):
    """``ready``: a lane was empty and is not now; ``waits_until``: the earliest time (ms) of a job that waits now.

    ``woke``: the partition was asleep and has got a job.
    """

    ready: bool
    waits_until: int | None
    woke: bool


NOTHING = News(False, None, False)


class Noticeboard:
    """Collects news until they are taken."""

    def __init__(self) -> None:
        self._news = NOTHING

    def became_ready(self) -> None:
        """Note that there is something to claim."""
        self._news = self._news._replace(ready=True)

    def waits_until(self, at: int) -> None:
        """Note that a job waits until ``at`` (ms)."""
        earliest = self._news.waits_until
        self._news = self._news._replace(waits_until=at if earliest is None else min(at, earliest))

    def woke(self) -> None:
        """Note that the partition was asleep."""
        self._news = self._news._replace(woke=True)

    def take(self) -> News:
        """Return the news since the last call."""
        news, self._news = self._news, NOTHING
        return news
