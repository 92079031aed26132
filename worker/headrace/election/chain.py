"""Which lock of the chain is used: down when one does not answer, up again when it has answered for long enough."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.election.lane import Hold, Lane
from headrace.election.timings import Timings


class Chain:
    """The lanes, highest rank first. ``level``: the one in use; ``aim``: the one that a leader tries to move to."""

    def __init__(self, lanes: Sequence[Lane], timings: Timings) -> None:
        self.lanes = tuple(lanes)
        self.level = 0
        self.aim: int | None = None
        self._timings = timings

    @property
    def current(self) -> Lane:
        """The lane in use."""
        return self.lanes[self.level]

    def wanted(self, index: int) -> bool:
        """Whether this process wants to hold that lock."""
        return index in (self.level, self.aim)

    def probed(self, index: int) -> bool:
        """Whether that lock is only asked whether it answers."""
        return index < self.level

    def move(self, now: float, leading: Hold | None) -> None:
        """Choose level and aim for ``now``. ``leading``: the hold behind the seat, None for one who does not lead."""
        if leading is None:
            self.aim = None
            self._move_follower(now)
        else:
            self._move_leader(now, leading)

    def arrived(self, index: int, now: float) -> int:
        """Note that the seat moved to ``index``; return by how many places it went up (negative: down)."""
        up = self.level - index
        for lane in self.lanes[self.level : index]:
            lane.fell(now)
            # It could not be reached to free it; what it holds of ours runs out.
            lane.drop()
        self.level, self.aim = index, None
        return up

    def _move_follower(self, now: float) -> None:
        below = self.level + 1
        if below < len(self.lanes) and self.current.down(now, fresh=self._fresh(self.level)):
            self.current.fell(now)
            self.current.drop()
            self.level = below
            self.current.enter(now)
            return
        up = self._stable_above(now, leading=False)
        if up is not None:
            self.level = up
            self.current.enter(now)

    def _move_leader(self, now: float, hold: Hold) -> None:
        silent = now - hold.renewed_at >= self._timings.fallback_after or self.current.forbidden
        if silent:
            aim = self.aim if self.aim is not None and self.aim > self.level else None
            if aim is None:
                following = self.level + 1
            elif self.lanes[aim].down(now, fresh=self._fresh(aim)):
                following = aim + 1
            else:
                return
            if following < len(self.lanes):
                self.aim = following
                self.lanes[following].enter(now)
            return
        up = self._stable_above(now, leading=True)
        if up != self.aim:
            self.aim = up
            if up is not None:
                self.lanes[up].enter(now)

    def _stable_above(self, now: float, *, leading: bool) -> int | None:
        return next((index for index in range(self.level) if self.lanes[index].stable(now, leading=leading)), None)

    def _fresh(self, index: int) -> float:
        """How long a lock may be silent from the beginning: one call, once the first choice was given up."""
        return self._timings.fallback_after if index == 0 else self._timings.call_timeout + self._timings.pause
