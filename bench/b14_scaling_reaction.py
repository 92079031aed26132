"""B14: from a backlog on an idle queue at zero to workers, beside the real KEDA; and what scaling down costs jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.report import OURS, Check, Result, Sample, Series, find
from bench.rig import Case, Rig, say
from bench.scaling.descent import Descent
from bench.scaling.reaction import BACKLOG, Contender, listed, ours, pushed, react
from bench.scaling.stage import Stage
from bench.subject import ROOT, SubjectError
from headrace.sync_producer import SyncProducer
from tests.cluster import binaries
from tests.cluster.cluster import LocalCluster

TITLE = "scaling reaction"
PEERS = ()
KEDA = "keda"
PODS = 8
POLL_SECONDS = 30
TARGET_SECONDS = 1.5


def run(rig: Rig) -> Result:
    """Measure and compare, on a cluster of its own."""
    peer = not rig.alone and _keda_is_there(rig)
    with tempfile.TemporaryDirectory() as folder, LocalCluster() as cluster, cluster.namespace("bench") as namespace:
        for path in sorted((ROOT / "crds").glob("*.yaml")):
            cluster.apply(path)
        return measure(rig, cluster, namespace, Path(folder), peer=peer)


def measure(rig: Rig, cluster: LocalCluster, namespace: str, folder: Path, *, peer: bool) -> Result:
    """Measure in a namespace of a cluster that has our definitions. ``peer``: with KEDA."""
    pods = int(rig.options.get("pods", PODS))
    poll = int(rig.options.get("poll", POLL_SECONDS))
    with (
        Stage(cluster, namespace, rig.server.url, folder, peer=peer) as stage,
        SyncProducer(rig.server.url) as producer,
    ):
        cases = [_reaction(rig, stage, OURS, "from zero", ours(stage, producer, "ours"))]
        if peer:
            rig.versions[KEDA] = binaries.KEDA
            rig.settings[KEDA] = {"pollingInterval": f"{poll} and 1", "listLength": 5, "cooldownPeriod": 1}
            by_keda = pushed(stage, producer, "pushed", poll)
            cases.append(_reaction(rig, stage, OURS, "from zero by KEDA, external-push", by_keda))
            for seconds in (poll, 1):
                contender = listed(stage, f"listed-{seconds}", seconds)
                cases.append(_reaction(rig, stage, KEDA, f"from zero, polls every {seconds} s", contender))
        descent, seeds = Descent(stage, producer, "descent", pods), iter(range(10**6))
        ways = {"by decree": True, "by load": False}
        if rig.options.get("descent") == "decree":
            del ways["by load"]
        for way, by_decree in ways.items():
            down = partial(_descend, descent, seeds, by_decree=by_decree)
            cases.append(Case(OURS, f"{pods} Pods to 1 {way}:", "jobs", down))
        series = rig.interleaved(cases)
    rig.settings[OURS] = {"scaling": "defaults", "idleSeconds": 0, "ways down": " and ".join(ways)}
    return rig.result("B14", TITLE, series, checks(series, poll), _notes(pods))


def _keda_is_there(rig: Rig) -> bool:
    try:
        binaries.ensure(["keda"])
    except binaries.BinaryError as error:
        rig.missing[KEDA] = str(error)
        say(f"bench: {KEDA} is left out: {error}")
        return False
    return True


def _reaction(rig: Rig, stage: Stage, subject: str, name: str, contender: Contender) -> Case:
    # Spread evenly over a poll: an arrival knows nothing of it.
    phases = iter([(turn + 0.5) / rig.rounds for turn in range(rig.rounds)])

    def measured() -> dict[str, Sample]:
        try:
            return react(stage, contender, next(phases))
        except TimeoutError as error:
            raise SubjectError(f"{contender.deployment}: {error}") from error

    return Case(subject, name, "s", measured)


def _descend(descent: Descent, seeds: Iterator[int], *, by_decree: bool) -> dict[str, Sample]:
    return descent.run(next(seeds), by_decree=by_decree)


def checks(series: Sequence[Series], poll: int) -> list[Check]:
    """Hold ours to the limits, the longest and the most of all rounds; KEDA's reaction is reported beside it."""
    found = []
    for part in ("to replicas patched", "to first job, without that"):
        one = find(series, OURS, f"from zero {part}")
        found.append(Check.of(f"from zero {part}, longest, s", one.max if one else None, "<=", TARGET_SECONDS))
    found += [
        Check.of(f"{one.case}, all rounds", sum(each.value for each in one.samples), "<=", 0)
        for one in series
        if one.unit == "jobs" and not one.case.endswith("runs broken off")
    ]
    mine = find(series, OURS, "from zero to replicas patched")
    for seconds in (poll, 1):
        theirs = find(series, KEDA, f"from zero, polls every {seconds} s to replicas patched")
        value = theirs.median / mine.median if theirs and mine and mine.median else None
        what = f"to replicas patched: {KEDA}, polls every {seconds} s / {OURS}"
        found.append(Check.of(what, value, ">=", 1, binding=False))
    return found


def _notes(pods: int) -> list[str]:
    return [
        f"from zero: {BACKLOG} jobs appear at once in an idle queue without Pods. Replicas patched: seen at the API "
        "server, which is asked every 10 ms. First job: its handler begins, by the clock that all processes share. "
        "Start of the Pod: until its program has loaded; without that: all that is not this start.",
        "KEDA scales a Redis list; when the jobs appear is spread evenly over its poll from round to round.",
        f"{pods} Pods to 1: under a steady load of jobs of 0.2 to 0.8 s, one in 20 of 6 s, of which a stopped Pod lets "
        "pass 3 s. By load: minReplicas and the load fall, and the policy gives workers up. By decree: maxReplicas is "
        "lowered while all work. Attempts burned: failed runs and lost leases that jobs were charged with. Runs broken "
        "off are handed back.",
        "Pods are processes of this machine: no image is pulled, and all share its cores.",
    ]
