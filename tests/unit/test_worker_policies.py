"""What a worker knows of the settings of its queues, and what it says when there are none."""

from __future__ import annotations

import pytest

from headrace import WorkerSettings
from headrace.deletion import delete_queue
from headrace.lifecycle import promote
from headrace.stores.memory import MemoryStore
from headrace.worker.policies import Policies


async def test_a_queue_that_is_gone_is_told_from_one_that_is_not_there_yet(caplog: pytest.LogCaptureFixture) -> None:
    store, policies = MemoryStore(), Policies(WorkerSettings(queues=("emails",)))
    assert await policies.refresh(store, "emails") is None
    assert "queue emails does not exist yet; waiting for its first version" in caplog.text
    await promote(store, "emails", 1, 1)
    assert await policies.refresh(store, "emails") is not None
    await delete_queue(store, "emails")
    caplog.clear()
    assert await policies.refresh(store, "emails") is None
    assert await policies.refresh(store, "emails") is None
    assert [record.message for record in caplog.records] == [
        "queue emails is gone from the store; waiting for a version of it to be promoted"
    ]
