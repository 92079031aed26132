"""Readiness by the memory of the store's servers: when it turns red, and when it is well again."""

from __future__ import annotations

import logging

import pytest

from headrace.redis.info import memory, parse
from headrace.server_facts import MemoryUse
from headrace.stores.memory import MemoryStore
from headrace.worker.memory_watch import MemoryWatch


def used(percent: int, address: str = "a") -> MemoryUse:
    return MemoryUse(address, percent, 100)


def test_QD2_it_is_red_from_the_limit_on_until_clearly_less_is_used(caplog: pytest.LogCaptureFixture) -> None:
    watch = MemoryWatch(MemoryStore(), 0.9)
    assert (watch.enough, watch.ratio) == (True, None)
    enough = []
    with caplog.at_level(logging.WARNING):
        for percent in (0, 89, 90, 100, 89, 86, 84, 89, 90):
            watch.note([used(percent)])
            enough.append(watch.enough)
    assert enough == [True, True, False, False, False, False, True, True, False]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]
    assert "a uses 90% of its maxmemory" in caplog.text


def test_QD2_the_fullest_server_counts_and_one_without_a_limit_does_not() -> None:
    watch = MemoryWatch(MemoryStore(), 0.9)
    watch.note([used(10), used(95, "b"), MemoryUse("c", 1 << 40, None)])
    assert (watch.enough, watch.ratio) == (False, 0.95)
    watch.note([MemoryUse("c", 1 << 40, None)])
    assert (watch.enough, watch.ratio) == (True, None)
    watch.note([])
    assert watch.enough


def test_QD2_buffers_that_the_server_does_not_count_are_not_counted() -> None:
    told = b"# Memory\r\nused_memory:1000\r\nmaxmemory:2000\r\nmem_not_counted_for_evict:200\r\n"
    assert memory(parse(told), "a") == MemoryUse("a", 800, 2000)
    assert memory(parse(b"used_memory:1000\r\nmaxmemory:0\r\n"), "a").ratio is None
