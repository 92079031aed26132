"""Job ids: which are allowed, how they are stored, and which partition they belong to for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidInput
from headrace.ids import MAX_ID_BYTES, check_id, decode_id, encode_id, generate_id, new_id, partition_of

GOLDEN = json.loads((Path(__file__).parent / "golden" / "routing.json").read_text())

allowed_ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=MAX_ID_BYTES).filter(
    lambda text: len(text.encode()) <= MAX_ID_BYTES
)


@pytest.mark.parametrize("vector", GOLDEN["ids"], ids=lambda vector: ascii(vector["id"])[:40])
def test_routing_is_fixed_for_ever(vector: dict[str, object]) -> None:
    job_id = vector["id"]
    assert isinstance(job_id, str)
    assert check_id(job_id) == job_id
    assert [partition_of(job_id, n) for n in GOLDEN["partitions"]] == vector["partition"]
    assert partition_of(job_id, 2**32) == vector["crc32"]


def test_the_golden_vectors_reach_far() -> None:
    assert GOLDEN["partitions"][0] == 1
    assert GOLDEN["partitions"][-1] == 1024
    ids = [vector["id"] for vector in GOLDEN["ids"]]
    assert any(not job_id.isascii() for job_id in ids)
    assert any(len(encode_id(job_id)) == 16 for job_id in ids)
    # The check value of IEEE CRC-32.
    assert {vector["id"]: vector["crc32"] for vector in GOLDEN["ids"]}["123456789"] == 0xCBF43926


@given(allowed_ids, st.integers(1, 1024))
def test_every_id_has_a_partition(job_id: str, partitions: int) -> None:
    assert 0 <= partition_of(job_id, partitions) < partitions


def test_ids_spread_evenly() -> None:
    spread = [0] * 16
    for n in range(16_000):
        spread[partition_of(f"job-{n}", 16)] += 1
    assert min(spread) > 800
    assert max(spread) < 1200


@given(allowed_ids)
def test_the_stored_form_is_reversible(job_id: str) -> None:
    assert decode_id(encode_id(check_id(job_id))) == job_id


@given(st.uuids())
def test_a_canonical_uuid_is_stored_as_its_bytes(uuid: UUID) -> None:
    assert encode_id(str(uuid)) == uuid.bytes
    assert decode_id(uuid.bytes) == str(uuid)


@given(st.binary(min_size=16, max_size=16))
def test_sixteen_bytes_are_a_uuid_whatever_its_version(raw: bytes) -> None:
    assert encode_id(decode_id(raw)) == raw


@given(allowed_ids, allowed_ids)
def test_no_two_ids_share_a_stored_form(one: str, other: str) -> None:
    assert (encode_id(one) == encode_id(other)) == (one == other)


@pytest.mark.parametrize(
    ("job_id", "stored"),
    [
        ("order-7", b"order-7"),
        ("30313233-3435-3637-3839-616263646566", b"0123456789abcdef"),
        ("0123456789abcdef", b"\x000123456789abcdef"),
        ("30313233-3435-3637-3839-61626364656F", b"30313233-3435-3637-3839-61626364656F"),
        ("üüüüüüüü", b"\x00" + "üüüüüüüü".encode()),
        ("0123456789abcdefg", b"0123456789abcdefg"),
        ("30313233-3435-3637-3839-616263646566\u00e9", "30313233-3435-3637-3839-616263646566é".encode()),
    ],
)
def test_stored_forms(job_id: str, stored: bytes) -> None:
    assert encode_id(job_id) == stored
    assert decode_id(stored) == job_id


@pytest.mark.parametrize(
    ("job_id", "problem"),
    [
        ("", "non-empty"),
        (None, "non-empty"),
        (7, "non-empty"),
        (b"bytes", "non-empty"),
        ("x" * 201, "201 bytes"),
        ("ü" * 101, "202 bytes"),
        ("a\x00b", "control"),
        ("\x00" + "x" * 16, "control"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("\ud800", "Unicode"),
    ],
)
def test_what_cannot_be_an_id_is_refused(job_id: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        check_id(job_id)  # type: ignore[arg-type]
    assert caught.value.field == "id"


def test_generated_ids_are_uuids_in_the_order_of_their_making() -> None:
    ids = [new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(UUID(job_id).version == 7 for job_id in ids)
    text, stored = generate_id()
    assert encode_id(text) == stored
    assert UUID(text).version == 7
    assert text > ids[0]


def test_a_uuid_of_any_version_routes_by_its_text() -> None:
    text = str(uuid4())
    assert partition_of(text, 1024) == partition_of(decode_id(encode_id(text)), 1024)


_MAKES_IDS = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from headrace.ids import new_id

def ids_of_threads():
    with ThreadPoolExecutor(4) as threads:
        return [made for part in threads.map(lambda _: [new_id() for _ in range(1500)], range(4)) for made in part]

new_id()  # whatever it remembers is there when it forks
pipes = []
for _ in range(3):
    read, write = os.pipe()
    if os.fork() == 0:
        with os.fdopen(write, "w") as told:
            told.write(" ".join(ids_of_threads()))
        os._exit(0)
    os.close(write)
    pipes.append(read)
for read in pipes:
    with os.fdopen(read) as heard:
        print(heard.read())
print(*ids_of_threads())
"""


def test_M17_ids_are_unique_under_threads_forks_and_processes() -> None:
    running = [subprocess.Popen([sys.executable, "-c", _MAKES_IDS], stdout=subprocess.PIPE, text=True) for _ in "ab"]
    made = [job_id for process in running for job_id in process.communicate(timeout=120)[0].split()]
    assert len(set(made)) == len(made) == 2 * 4 * 6000
    # Not by their times alone: the random part differs too.
    assert len({job_id[19:] for job_id in made}) == len(made)
