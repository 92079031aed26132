"""Queues described in a file, and what applying them changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from headrace import QueueSettings, RetryPolicy
from headrace.errors import InvalidInput, OwnedByObject, TopologyConflict, VersionNotHigher
from headrace.lifecycle import promote
from headrace.pausing import pause_queue
from headrace.queue_apply import apply_queue, plan_queue
from headrace.queue_file import OF_KUBERNETES, read_queues, summaries
from headrace.settings import DrainSettings, Retention
from headrace.stores.memory import MemoryStore
from headrace_operator.api.queue_spec import QueueSpec

FULL: dict[str, Any] = {
    "version": 2,
    "partitions": 4,
    "paused": True,
    "retry": {
        "maxRetries": 7, "strategy": "linear", "baseMilliseconds": 5, "capMilliseconds": 50, "crashLimit": 2,
    },
    "timeoutSeconds": 60,
    "leaseSeconds": 20,
    "limits": {"ratePerSecond": 0.5, "maxInFlight": 9, "maxLength": 1000},
    "retention": {"doneSeconds": 5, "doneCount": 6, "doneBytes": 2048, "deadCount": 8, "historyEntries": 9},
    "drain": {"policy": "Migrate", "order": "Strict", "timeoutSeconds": 70, "onTimeout": "DeadLetter"},
    "mode": "LeaderOnly",
}  # fmt: skip


def document(name: str = "emails", /, **spec: Any) -> str:
    return yaml.safe_dump(
        {"apiVersion": "headrace.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    )


def settings(**spec: Any) -> QueueSettings:
    (found,) = read_queues(document(version=1, partitions=1, **spec))
    return found.settings


def test_a_whole_spec_means_the_same_as_to_the_operator() -> None:
    (found,) = read_queues(document(**FULL))
    assert (found.queue, found.version, found.partitions, found.stop_given) == ("emails", 2, 4, True)
    assert found.settings == QueueSpec.model_validate(FULL).settings()
    assert found.ignored == ()


@pytest.mark.parametrize("policy", ["None", "Hold", "HoldAndDrain"])
def test_each_way_to_stop_is_that_of_the_operator(policy: str) -> None:
    expected = QueueSpec.model_validate({"version": 1, "partitions": 1, "stopPolicy": policy}).settings().stop
    assert settings(stopPolicy=policy).stop == expected


def test_every_field_of_a_queue_object_is_known() -> None:
    """So that a field that the operator learns is not refused here."""

    def names(model: Any, before: str = "") -> set[str]:
        found: set[str] = set()
        for field in model.model_fields.values():
            inner = {"retry", "limits", "retention", "drain"} & {field.alias}
            kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
            part = next((kind for kind in kinds if hasattr(kind, "model_fields")), None) if inner else None
            found |= names(part, f"{field.alias}.") if part else {before + field.alias}
        return found

    for name in names(QueueSpec):
        text = document(**{name.partition(".")[0]: None if "." not in name else {name.partition(".")[2]: None}})
        with pytest.raises(InvalidInput, match="is missing; give a whole number"):  # the field itself is accepted
            read_queues(text)


def test_what_is_left_out_is_left_to_the_workers() -> None:
    assert settings() == QueueSettings()
    assert settings(retry={"maxRetries": 1}).retry == RetryPolicy(max_retries=1)
    assert settings(retention={}).retention == Retention()
    assert settings(drain={"timeoutSeconds": 0}).drain == DrainSettings()


def test_what_only_kubernetes_can_do_is_left_aside_and_told() -> None:
    spec: dict[str, Any] = {
        **{name: {"a": 1} for name in ("workers", "scaling", "connection")},
        "promotion": "Manual",
        "drain": {"deletionTimeoutSeconds": 5, "policy": "Migrate"},
    }
    found = read_queues(document(version=1, partitions=1, **spec))
    assert set(found[0].ignored) == {"workers", "scaling", "connection", "promotion", "drain.deletionTimeoutSeconds"}
    assert set(found[0].ignored) <= set(OF_KUBERNETES)
    assert found[0].settings.drain.policy == "migrate"
    (line,) = summaries(found)
    assert line.startswith("queue emails: ")
    assert line.endswith("say nothing without an operator, and are left aside")


def test_several_documents_json_and_a_name_of_its_own() -> None:
    both = document("a", version=1, partitions=1) + "---\n" + document("b", version=1, partitions=2, queueName="c.d")
    assert [(each.queue, each.partitions) for each in read_queues(both)] == [("a", 1), ("c.d", 2)]
    as_json = json.dumps(yaml.safe_load(document(version=3, partitions=1)))
    assert read_queues(as_json)[0].version == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "file: describes no queue"),
        ("a: [", "file: is not YAML: "),
        ("just text", "document 1: is no Queue object; give apiVersion headrace.dev/v1alpha1 and kind Queue"),
        ("apiVersion: apps/v1\nkind: Queue\n", "document 1: is no Queue object"),
        ("apiVersion: headrace.dev/v1alpha1\nkind: Queue\n", "document 1: spec: is missing"),
        ("apiVersion: headrace.dev/v1alpha1\nkind: Queue\nspec: {}\n", "document 1: metadata.name: is missing"),
        (document("NO", version=1, partitions=1), "'NO' is not a queue name"),
        (document(partitions=1), "queue 'emails': spec.version: is missing"),
        (document(version=1), "queue 'emails': spec.partitions: is missing"),
        (document(version="x", partitions=1), "queue 'emails': spec.version: is 'x'; give 1 to"),
        (document(version=1, partitions=0), "queue 'emails': spec.partitions: is 0; give 1 to 1024"),
        (document(version=1, partitions=1) + "---\n" + document(version=2, partitions=1), "queue 'emails' twice"),
        (document(version=1, partitions=1) + "  version: 2\n", "file: has 'version' twice in one mapping (line 8)"),
    ],
)
def test_what_is_no_queue_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_queues(text)
    assert told in str(refused.value)


def test_what_a_merge_key_brings_may_be_given_anew() -> None:
    retry = "x: &all {maxRetries: 1, baseMilliseconds: 5}\nspec:\n  retry: {<<: *all, maxRetries: 2}"
    (found,) = read_queues(document(version=1, partitions=1).replace("spec:", retry))
    assert found.settings.retry == RetryPolicy(max_retries=2, base_ms=5)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"timeoutSecond": 5}, "spec.timeoutSecond: is no field of a Queue; is timeoutSeconds meant?"),
        ({"retry": {"maxRetrys": 5}}, "spec.retry.maxRetrys: is no field of a Queue; is retry.maxRetries meant?"),
        ({"colour": "red"}, "spec.colour: is no field of a Queue; leave it out"),
        ({"timeoutSeconds": 0}, "spec.timeoutSeconds: is too small; give 1 or more"),
        ({"timeoutSeconds": "5"}, "spec.timeoutSeconds: is '5'; give a whole number of seconds"),
        ({"limits": {"ratePerSecond": 0}}, "spec.limits.ratePerSecond: is too small; give more than 0"),
        ({"leaseSeconds": 7200}, "spec.leaseSeconds: is too large; give at most 3600"),
        ({"retry": {"maxRetries": -1}}, "spec.retry.maxRetries: is too small; give 0 or more"),
        ({"retry": {"maxRetries": "many"}}, "spec.retry.maxRetries: is 'many'; input should be a valid integer"),
        (
            {"retry": {"baseMilliseconds": 9, "capMilliseconds": 3}},
            "spec.retry: baseMilliseconds 9 is above capMilliseconds 3; lower baseMilliseconds or raise",
        ),
        ({"drain": {"policy": "wait"}}, "spec.drain.policy: is 'wait'; give Wait, Migrate"),
        ({"drain": {"order": "Strict"}}, "spec.drain: order strict needs policy migrate"),
        ({"mode": 3}, "spec.mode: is 3; give Shared, LeaderOnly"),
        ({"paused": "yes"}, "spec.paused: is 'yes'; give true or false"),
        ({"paused": True, "stopPolicy": "HoldAndDrain"}, "spec.paused: contradicts stopPolicy HoldAndDrain"),
    ],
)
def test_a_wrong_field_is_named_with_its_remedy(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings(**spec)
    assert f"queue 'emails': {told}" in str(refused.value)


async def test_a_queue_is_created_configured_and_promoted_and_the_same_again_changes_nothing() -> None:
    store = MemoryStore()
    (first,) = read_queues(document(version=1, partitions=2, timeoutSeconds=60))
    assert (await plan_queue(store, first)).created
    assert await store.read_topology("emails") is None
    assert (await apply_queue(store, first))[1:] == (True, True, (("timeout_ms", None, 60_000),))
    topology = await store.read_topology("emails")
    assert topology is not None
    assert (topology.active, topology.partitions, topology.settings) == (1, 2, QueueSettings(timeout_ms=60_000))
    assert not (await apply_queue(store, first)).changed
    assert await store.read_topology("emails") == topology
    (second,) = read_queues(document(version=2, partitions=3, leaseSeconds=9))
    applied = await apply_queue(store, second)
    assert (applied.created, applied.promoted) == (False, True)
    assert applied.settings == (("lease_ms", None, 9000), ("timeout_ms", 60_000, None))
    after = await store.read_topology("emails")
    assert after is not None
    assert (after.active, after.partitions, after.draining) == (2, 3, (1,))
    assert after.settings == QueueSettings(lease_ms=9000)


async def test_a_pause_by_hand_survives_a_file_that_says_nothing_of_it() -> None:
    store = MemoryStore()
    (silent,) = read_queues(document(version=1, partitions=1))
    await apply_queue(store, silent)
    await pause_queue(store, "emails")
    assert not (await apply_queue(store, silent)).changed
    (told,) = read_queues(document(version=1, partitions=1, paused=False))
    assert (await apply_queue(store, told)).settings == (("stop", "hold", "none"),)


async def test_what_cannot_be_is_refused_before_anything_changes() -> None:
    store = MemoryStore()
    await promote(store, "emails", 2, 2)
    before = await store.read_topology("emails")
    for spec, error in (
        ({"version": 1, "partitions": 2}, VersionNotHigher),
        ({"version": 2, "partitions": 3}, TopologyConflict),
    ):
        (wanted,) = read_queues(document(**spec, timeoutSeconds=5))
        for act in (plan_queue, apply_queue):
            with pytest.raises(error):
                await act(store, wanted)
    assert await store.read_topology("emails") == before
    await promote(store, "owned", 1, 1, owner={"namespace": "shop", "name": "owned", "uid": "u"})
    (wanted,) = read_queues(document("owned", version=1, partitions=1))
    with pytest.raises(OwnedByObject, match="apply the object: `kubectl apply`"):
        await apply_queue(store, wanted)
