"""The health of Queues for Argo CD: its script, run by the Lua of a real server on what the operator writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import redis

from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.observed import ConnectionProblem, Observed
from headrace_operator.planning import plan
from headrace_operator.reasons import Finding, Reason
from headrace_operator.status import build_status
from tests.docs.blocks import ROOT
from tests.unit.operator.scene import backend, counts, filled, observed, queue, queue_version, topology

SCRIPT = (ROOT / "charts/headrace/files/argocd-health.lua").read_text()
V1 = topology({1: (4, "active")})


@pytest.fixture
def lua(server_url: str) -> Any:
    with redis.Redis.from_url(server_url, decode_responses=True) as client:

        def health(status: QueueStatus | None, generation: int = 7, **metadata: Any) -> dict[str, str]:
            body: dict[str, Any] = {"metadata": {"generation": generation, **metadata}}
            if status is not None:
                body["status"] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
            # Argo CD gives the object as a table and takes one.
            wrapped = f"local obj = cjson.decode(ARGV[1])\nreturn cjson.encode((function()\n{SCRIPT}\nend)())"
            answer: dict[str, str] = json.loads(client.eval(wrapped, 0, json.dumps(body)))
            return answer

        yield health


def status_of(seen: Observed) -> QueueStatus:
    return build_status(seen, plan(seen))


def well(**spec: Any) -> Observed:
    return observed(queue(**spec), backend(V1, counts=filled(V1)), queue_version(1))


def test_a_queue_that_is_ready_is_healthy(lua: Any) -> None:
    assert lua(status_of(well())) == {"status": "Healthy", "message": "v1 with 4 partitions takes jobs"}


def test_one_that_the_operator_has_not_looked_at_is_progressing(lua: Any) -> None:
    assert lua(None)["status"] == "Progressing"
    assert lua(status_of(well()), generation=8)["status"] == "Progressing"


def test_one_that_is_being_deleted_is_progressing(lua: Any) -> None:
    assert lua(status_of(well()), deletionTimestamp="2026-01-02T03:04:05Z")["status"] == "Progressing"


def test_a_bump_is_progressing_until_the_version_is_active(lua: Any) -> None:
    assert lua(status_of(observed(queue(2, 8), backend(V1), queue_version(1))))["status"] == "Progressing"
    both = topology({1: (4, "draining"), 2: (8, "active")})
    held = backend(both, counts=filled(both, v1=counts("draining", ready=2)))
    drains = observed(queue(2, 8), held, queue_version(1, phase="Draining"), queue_version(2, 8))
    assert lua(status_of(drains))["status"] == "Healthy"


def test_a_version_that_waits_for_its_promotion_is_suspended(lua: Any) -> None:
    made = filled(V1) | {2: dict.fromkeys(range(8), counts())}
    objects = (queue_version(1), queue_version(2, 8, phase="Provisioned"))
    answer = lua(status_of(observed(queue(2, 8, promotion="Manual"), backend(V1, counts=made), *objects)))
    assert answer["status"] == "Suspended"
    assert "headrace.dev/promote" in answer["message"]


def test_a_server_that_does_not_answer_is_waited_for(lua: Any) -> None:
    problem = ConnectionProblem(Finding(Reason.UNREACHABLE, "redis:6379 does not answer"))
    answer = lua(status_of(replace(well(), backend=problem)))
    assert answer == {"status": "Progressing", "message": "Unreachable: redis:6379 does not answer"}


def test_what_needs_somebody_is_degraded(lua: Any) -> None:
    problem = Finding(Reason.INVALID_SPEC, "spec.partitions changes with spec.version only")
    stalled = build_status(well(), replace(plan(well()), stalled=problem))
    assert lua(stalled) == {"status": "Degraded", "message": f"InvalidSpec: {problem.message}"}


def test_a_queue_that_lost_its_jobs_is_degraded_until_somebody_has_seen_it(lua: Any) -> None:
    seen = well()
    lost = replace(seen, queue=replace(seen.queue, status=QueueStatus(data_loss_epoch=3)))
    assert lua(status_of(lost))["status"] == "Degraded"
    known = replace(lost, queue=replace(lost.queue, annotations={"headrace.dev/ack-data-loss": "3"}))
    assert lua(status_of(known))["status"] == "Healthy"


def test_a_pause_that_git_asks_for_holds_nothing_up(lua: Any) -> None:
    spec = queue(paused=True).spec
    assert spec is not None
    held = replace(V1, settings=spec.settings())
    answer = lua(status_of(observed(queue(paused=True), backend(held, counts=filled(held)), queue_version(1))))
    assert answer["status"] == "Healthy"
    assert answer["message"].startswith("paused: ")
