"""Rules for jobs whose lease was lost: the one in use (`GroupsThenAlone`), and those that it was compared with."""

from __future__ import annotations

from headrace.worker.seclusion import group_size
from tests.simulation.loss.world import Job, Process, World


def _take_fresh(world: World, process: Process) -> None:
    while world.fresh and len(process.running) < world.slots:
        world.start(process, world.fresh.pop())


def _may_claim(world: World, process: Process, *, waits: bool) -> bool:
    """Whether the process may claim what is fresh; if something waits for an idle process, one at a time makes room."""
    if not waits:
        if world.making_room is process:
            world.making_room = None
        return True
    if world.making_room is None:
        world.making_room = process
    return world.making_room is not process


class EveryLoss:
    """Each lost lease is charged: what most libraries do."""

    def charges(self, job: Job, process: Process, lost: int) -> bool:
        return True

    def take_back(self, world: World, job: Job, lost: int) -> None:
        world.suspects.append(job)

    def take(self, world: World, process: Process) -> None:
        while world.suspects and len(process.running) < world.slots:
            world.start(process, world.suspects.pop(0))
        _take_fresh(world, process)


class OneBesideOthers:
    """A process runs one suspect at a time, beside fresh jobs; a suspect that is lost again is charged."""

    def charges(self, job: Job, process: Process, lost: int) -> bool:
        return job.suspicion == 1

    def take_back(self, world: World, job: Job, lost: int) -> None:
        job.suspicion = 1
        world.suspects.append(job)

    def take(self, world: World, process: Process) -> None:
        room = len(process.running) < world.slots
        if room and world.suspects and not any(job.suspicion for job in process.running):
            world.start(process, world.suspects.pop(0))
        _take_fresh(world, process)


class Alone:
    """A process that runs a suspect runs nothing else."""

    def charges(self, job: Job, process: Process, lost: int) -> bool:
        return job.suspicion == 1

    def take_back(self, world: World, job: Job, lost: int) -> None:
        job.suspicion = 1
        world.suspects.append(job)

    def take(self, world: World, process: Process) -> None:
        if any(job.suspicion for job in process.running):
            return
        if world.suspects and not process.running:
            _may_claim(world, process, waits=False)
            world.start(process, world.suspects.pop(0))
        elif _may_claim(world, process, waits=bool(world.suspects)):
            _take_fresh(world, process)


class Halves:
    """Suspects run without others in groups of half of those that were lost together, at last alone."""

    def charges(self, job: Job, process: Process, lost: int) -> bool:
        return job.suspicion == 1 and lost == 1

    def take_back(self, world: World, job: Job, lost: int) -> None:
        job.suspicion, job.group = 1, max(1, lost // 2)
        world.suspects.append(job)

    def take(self, world: World, process: Process) -> None:
        if any(job.suspicion for job in process.running):
            return
        if world.suspects and not process.running:
            _may_claim(world, process, waits=False)
            size = min(world.suspects[0].group, world.slots)
            for job in [job for job in world.suspects if job.group == world.suspects[0].group][:size]:
                world.suspects.remove(job)
                world.start(process, job)
        elif _may_claim(world, process, waits=bool(world.suspects)):
            _take_fresh(world, process)


class GroupsThenAlone:
    """Suspects run a few at a time beside others; one that is lost again runs alone, and only there it is charged."""

    def charges(self, job: Job, process: Process, lost: int) -> bool:
        return process.alone

    def take_back(self, world: World, job: Job, lost: int) -> None:
        (world.suspects if job.suspicion == 0 else world.apart).append(job)
        job.suspicion = min(2, job.suspicion + 1)

    def take(self, world: World, process: Process) -> None:
        if process.alone and process.running:
            return
        process.alone = False
        if world.apart and not process.running:
            _may_claim(world, process, waits=False)
            process.alone = True
            world.start(process, world.apart.pop(0))
        elif _may_claim(world, process, waits=bool(world.apart)):
            suspects = sum(job.suspicion > 0 for job in process.running)
            while world.suspects and suspects < group_size(world.slots) and len(process.running) < world.slots:
                world.start(process, world.suspects.pop(0))
                suspects += 1
            _take_fresh(world, process)
