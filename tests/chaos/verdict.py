"""What a chaos run has shown: counted from what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from tests.chaos.stage import Effect


@dataclass(frozen=True)
class Verdict:
    """Counts.

    ``overlaps``: effects of a leader after one of a later epoch, or of a second writer in one epoch. ``lost``: jobs
    that were accepted and never ran, and seconds without their job. ``doubled``: jobs that ran more than once; a worker
    that is killed between a run and its acknowledgement makes one, so it is told and no fault. ``refused``: effects
    that the fence refused, each of which would have been one of two leaders at once. ``longest``: ms without an effect.
    """

    effects: int
    epochs: int
    refused: int
    overlaps: int
    longest: int
    jobs: int
    ticks: int
    lost: int
    doubled: int
    doubled_ticks: int

    @property
    def sound(self) -> bool:
        """Whether nothing happened that must not."""
        return self.overlaps == self.lost == 0 and self.effects > 0

    def __str__(self) -> str:
        return (
            f"{self.effects} effects of leaders in {self.epochs} epochs, {self.refused} refused by the fence, "
            f"{self.overlaps} overlaps, at most {self.longest / 1000:.1f} s without a leader's effect\n"
            f"{self.jobs} jobs and {self.ticks} of a schedule every second: {self.lost} lost, {self.doubled} and "
            f"{self.doubled_ticks} ran more than once"
        )


def overlaps(effects: Sequence[Effect]) -> int:
    """Count the effects of a leader that came after those of a later one, or under an epoch of somebody else."""
    found, writers, highest = 0, dict[int, str](), 0
    for each in effects:
        found += each.epoch < highest or writers.setdefault(each.epoch, each.name) != each.name
        highest = max(highest, each.epoch)
    return found


def longest_gap(effects: Sequence[Effect]) -> int:
    """Return the longest time (ms) between two effects."""
    return max((later.at - earlier.at for earlier, later in pairwise(effects)), default=0)


def missing_seconds(ids: Iterable[str]) -> int:
    """Count the seconds between the first and the last job of the schedule that have none."""
    moments = sorted(datetime.fromisoformat(each.partition("@")[2]) for each in ids)
    if not moments:
        return 0
    return (moments[-1] - moments[0]) // timedelta(seconds=1) + 1 - len(set(moments))


def verdict(effects: Sequence[Effect], refused: int, accepted: Iterable[str], runs: Mapping[str, int]) -> Verdict:
    """Judge a run that has come to rest: nothing is on its way any more."""
    accepted = list(accepted)
    ticks = [each for each in runs if each.startswith("tick@")]
    return Verdict(
        effects=len(effects),
        epochs=len({each.epoch for each in effects}),
        refused=refused,
        overlaps=overlaps(effects),
        longest=longest_gap(effects),
        jobs=len(accepted),
        ticks=len(ticks),
        lost=sum(1 for each in accepted if each not in runs) + missing_seconds(ticks),
        doubled=sum(1 for each in accepted if runs.get(each, 0) > 1),
        doubled_ticks=sum(1 for each in ticks if runs[each] > 1),
    )
