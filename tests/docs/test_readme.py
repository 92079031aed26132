"""Every code block of the README runs, in its order, on a real cluster and a real Redis."""

from __future__ import annotations

from tests.docs.blocks import ROOT, blocks
from tests.docs.story import Story


def test_M21_every_block_of_the_README_is_run(story: Story) -> None:
    assert story.used == blocks(ROOT / "README.md")


def test_a_producer_without_a_queue_is_told_so(story: Story) -> None:
    assert "UnknownQueue: queue 'emails' does not exist in this store" in story.without_queue


def test_kubectl_shows_the_queue(story: Story) -> None:
    header, row = story.columns.splitlines()[-2:]
    shown = dict(zip(header.split(), row.split(), strict=False))
    columns = ("NAME", "READY", "PAUSED", "VERSION", "ACTIVE", "PARTS")
    assert [shown[column] for column in columns] == ["emails", "True", "False", "1", "1", "4"]


def test_the_bump_has_ended(story: Story) -> None:
    cluster = story.reader.cluster
    queue = cluster.get("headrace.dev/v1alpha1", "Queue", "emails", "default")
    assert queue is not None
    assert (queue["status"]["activeVersion"], queue["status"]["activePartitions"]) == (2, 16)
    old = cluster.get("headrace.dev/v1alpha1", "QueueVersion", "emails-v1", "default")
    assert old is not None
    assert old["status"]["phase"] == "Completed"


def test_the_worker_without_kubernetes_ends_in_order(story: Story) -> None:
    assert "reports:1" in story.by_hand  # headrace status
    assert "has ended" in story.by_hand
