"""Dead letters as JSON lines and back, and what an import adds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace import RetryPolicy
from headrace.dead_letter_lines import import_letters, letter_of, line_of
from headrace.dead_letters import dead_jobs, delete_dead, retry_dead
from headrace.errors import InvalidInput, UnknownQueue
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.stores.base import DeadLetter, Failure, Store
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef

AT = PartitionRef("emails", 1, 0)
GIVEN: dict[str, dict[str, Any]] = {
    "plain": {"payload": {"to": "ada"}},
    "raw": {"payload": b"\x00\xff"},
    "019b1c1e-3c5c-7c50-8c1d-1f1f1f1f1f1f": {
        "payload": None,
        "max_retries": 0,
        "timeout": 7,
        "priority": "high",
        "headers": {"of": "ü"},
        "retry": RetryPolicy(max_retries=9, strategy="linear", base_ms=7),
    },
}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = MemoryStore()
    await promote(store, "emails", 1, 1)
    for seq, (id, fields) in enumerate(GIVEN.items(), 1):
        await Producer(store).enqueue("emails", "send", id=id, **fields)
        claim = await store.claim(AT, "w", seq, 1, 60_000)
        await store.fail(AT, [Failure(claim.jobs[0].key, claim.token, None, "boom\n  mail.py:7")])
    yield store
    await store.close()


async def exported(store: Store, queue: str = "emails") -> list[str]:
    return [json.dumps(line_of(dead)) async for dead in dead_jobs(store, queue)]


async def test_QD5_what_is_exported_is_imported_as_it_was(store: Store) -> None:
    before = [dead async for dead in dead_jobs(store, "emails")]
    lines = await exported(store)
    assert await delete_dead(store, before) == 3
    letters = [letter_of(json.loads(line)) for line in lines]
    assert await import_letters(store, "emails", letters) == (3, 0, 0)
    after = [dead async for dead in dead_jobs(store, "emails")]
    assert [dead.letter.letter for dead in after] == [dead.letter.letter for dead in before]
    assert [dead.letter.record for dead in after] == [dead.letter.record for dead in before]
    assert [dead.job for dead in after] == [dead.job for dead in before]
    assert await exported(store) == lines


async def test_QD5_the_same_import_again_adds_nothing_and_counting_changes_nothing(store: Store) -> None:
    letters = [letter_of(json.loads(line)) for line in await exported(store)]
    await promote(store, "emails", 2, 3)
    assert await import_letters(store, "emails", letters, dry_run=True) == (0, 3, 0)
    assert await import_letters(store, "emails", [*letters, *letters]) == (0, 3, 0)
    await promote(store, "others", 1, 2)
    assert await import_letters(store, "others", letters, dry_run=True) == (3, 0, 0)
    assert await exported(store, "others") == []
    assert await import_letters(store, "others", letters) == (3, 0, 0)
    assert len(await exported(store, "others")) == 3
    with pytest.raises(UnknownQueue):
        await import_letters(store, "nobody", letters)


async def test_QD5_a_letter_whose_id_is_live_is_kept_out(store: Store) -> None:
    lines = await exported(store)
    first, *_ = [dead async for dead in dead_jobs(store, "emails")]
    assert await retry_dead(Producer(store), store, first)
    letters = [letter_of(json.loads(line)) for line in lines]
    assert await import_letters(store, "emails", letters) == (0, 2, 1)
    assert len(await exported(store)) == 2


async def test_two_deaths_of_one_id_are_two_letters(store: Store) -> None:
    line = json.loads((await exported(store))[0])
    earlier = letter_of({**line, "died_at": "2020-01-01T00:00:00.000+00:00"})
    assert await import_letters(store, "emails", [letter_of(line), earlier]) == (1, 1, 0)
    assert await import_letters(store, "emails", [letter_of(line), earlier]) == (0, 2, 0)


async def test_more_letters_than_a_step_carries_are_imported_in_several(store: Store) -> None:
    line = json.loads((await exported(store))[0])
    letters = [letter_of({**line, "id": f"job-{n:04}"}) for n in range(450)]
    large = [letter_of({**line, "id": f"large-{n}", "payload": "x" * 200_000}) for n in range(4)]
    assert await import_letters(store, "emails", [*letters, *large]) == (454, 0, 0)


async def test_a_letter_that_cannot_be_read_survives_as_it_is(store: Store) -> None:
    odd = DeadLetter(b"odd@1700000000000", 1_700_000_000_000, b"no record", b"")
    assert await import_letters(store, "emails", [odd]) == (1, 0, 0)
    (line,) = [json.loads(text) for text in await exported(store) if '"odd"' in text]
    assert letter_of(line) == odd


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": ""}, "id: is not a non-empty string"),
        ({"died_at": "yesterday"}, "died_at: is 'yesterday'; give a time such as"),
        ({"died_at": "2030-01-01T00:00:00"}, "died_at: is '2030-01-01T00:00:00'"),
        ({"type": ""}, "type: is empty"),
        ({"payload": "zz", "payload_is_hex": True}, "line: a field cannot be read"),
        ({"priority": 7}, "priority: is 7"),
        ({"headers": {"a": 1}}, "headers: are not a map of text to text"),
        ({"history": [{}]}, "line: field 'status' is missing"),
        ({"retry": {"max_retries": -1}}, "RetryPolicy.max_retries: -1 is below 0; give 0 to 1000"),
    ],
)
async def test_a_line_that_is_wrong_is_refused_and_says_where(store: Store, change: dict[str, Any], told: str) -> None:
    line = json.loads((await exported(store))[0])
    with pytest.raises(InvalidInput) as refused:
        letter_of({**line, **change})
    assert told in str(refused.value)


@pytest.mark.parametrize("line", [[], "text", {}, {"id": "a"}, None])
def test_what_is_no_line_of_an_export_is_refused(line: Any) -> None:
    with pytest.raises(InvalidInput, match="is no dead letter; import lines as"):
        letter_of(line)
