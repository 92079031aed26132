"""The packed record: its bytes are a format that other versions read, and every job survives it."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.envelope import MAX_PAYLOAD_BYTES, decode_record, decode_result, encode_body, encode_result, no_result
from headrace.errors import InvalidInput, PayloadTooLarge, ResultNotKept
from headrace.ids import encode_id
from headrace.job import MAX_TIMEOUT_MS, HistoryEntry, Job
from headrace.retry import RetryPolicy

CREATED, RUN_AT = 1_700_000_000_000, 1_700_000_060_000


def decoded(body: bytes, *, job_id: str = "a", changes: bytes = b"") -> Job:
    record = struct.pack(">QQ", CREATED, RUN_AT) + body
    return decode_record(encode_id(job_id), record, changes, queue="emails", version=7, partition=3)


GOLDEN: list[tuple[tuple[str, Any], dict[str, Any], str]] = [
    # format flags timeout retries lane type extras payload
    (("t", None), {}, "01 00 00000000 ffff 01 01 74 0000 6e756c6c"),
    (("send", {"to": "ü"}), {}, "01 00 00000000 ffff 01 04 73656e64 0000 7b22746f223a22c3bc227d"),
    (("send", b"\x00\xff"), {}, "01 01 00000000 ffff 01 04 73656e64 0000 00ff"),
    (("t", 1), {"timeout_ms": 30_000, "max_retries": 3, "priority": 2}, "01 00 00007530 0003 02 01 74 0000 31"),
    (("t", []), {"max_retries": 0, "timeout_ms": MAX_TIMEOUT_MS}, "01 00 ffffffff 0000 01 01 74 0000 5b5d"),
    (("t", ""), {"headers": {"k": "v"}}, "01 00 00000000 ffff 01 01 74 0008 81 a168 81 a16b a176 2222"),
]


@pytest.mark.parametrize(("arguments", "options", "packed"), GOLDEN)
def test_the_bytes_of_a_body_are_fixed(arguments: tuple[str, Any], options: dict[str, Any], packed: str) -> None:
    assert encode_body(*arguments, **options).hex() == packed.replace(" ", "")


def test_a_record_begins_with_the_two_times() -> None:
    job = decoded(encode_body("send", {"n": 1}))
    assert (job.created_at, job.run_at) == (CREATED, RUN_AT)
    assert (job.id, job.queue, job.version, job.partition) == ("a", "emails", 7, 3)
    assert (job.type, job.payload, job.headers) == ("send", {"n": 1}, {})
    assert (job.max_retries, job.timeout_ms, job.priority) == (None, None, 1)
    assert (job.attempt, job.expiries, job.last_error, job.history) == (0, 0, "", ())


def test_changes_are_read_beside_the_record() -> None:
    parts = [2, 1, "boom", 2, 1, 1], ["failed", 5, "w", "boom"], ["lease expired", 6, "v", ""]
    changes = b"".join(map(msgpack.packb, parts))
    job = decoded(encode_body("t", None), changes=changes)
    assert (job.attempt, job.expiries, job.last_error, job.crashes, job.suspect) == (2, 1, "boom", 1, True)
    assert job.history == (HistoryEntry("failed", 5, "w", "boom"), HistoryEntry("lease expired", 6, "v", ""))


def test_a_retry_policy_and_headers_travel_beside_each_other() -> None:
    policy = RetryPolicy(max_retries=7, strategy="backpressure", base_ms=5, cap_ms=500)
    for headers in (None, {}, {"trace": "t"}):
        body = encode_body("send", None, retry=policy, headers=headers, max_retries=2)
        job = decode_record(b"id", bytes(16) + body, b"", queue="q", version=1, partition=0)
        assert (job.retry, job.headers, job.max_retries) == (policy, headers or {}, 2)


def test_changes_with_broken_text_are_still_read() -> None:
    """A server packs text as it came, whatever its encoding."""
    changes = b"\x96\x01\x00\xa2\xc3(\x00\x00\x00"
    assert decoded(encode_body("t", None), changes=changes).last_error == "\ufffd("


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.isprintable),
    json_values | st.binary(max_size=200),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(1, MAX_TIMEOUT_MS),
    st.integers(0, 2),
    st.dictionaries(texts, texts, max_size=4),
)
def test_every_job_survives(
    kind: str,
    payload: object,
    max_retries: int | None,
    timeout_ms: int | None,
    priority: int,
    headers: dict[str, str],
) -> None:
    body = encode_body(
        kind, payload, max_retries=max_retries, timeout_ms=timeout_ms, priority=priority, headers=headers
    )
    job = decoded(body)
    assert (job.type, job.payload, job.max_retries, job.timeout_ms, job.priority, job.headers) == (
        kind,
        payload,
        max_retries,
        timeout_ms,
        priority,
        headers,
    )
    assert type(job.payload) is type(payload)


@pytest.mark.parametrize("raw", [b"xyz", bytearray(b"xyz"), memoryview(b"xyz")])
def test_bytes_in_any_form_are_raw_payloads(raw: bytes) -> None:
    assert decoded(encode_body("t", raw)).payload == b"xyz"


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        (("", 1), {}, "type"),
        (("ü" * 128, 1), {}, "type"),
        (("a\x00b", 1), {}, "type"),
        ((None, 1), {}, "type"),
        (("t", object()), {}, "payload"),
        (("t", {1, 2}), {}, "payload"),
        (("t", math.nan), {}, "payload"),
        (("t", [math.inf]), {}, "payload"),
        (("t", "\ud800"), {}, "payload"),
        (("t", 1), {"max_retries": -1}, "max_retries"),
        (("t", 1), {"max_retries": 1001}, "max_retries"),
        (("t", 1), {"timeout_ms": 0}, "timeout"),
        (("t", 1), {"timeout_ms": 2**32}, "timeout"),
        (("t", 1), {"headers": {"k": "x" * 70_000}}, "headers"),
        (("t", 1), {"headers": {"k": 1}}, "headers"),
        (("t", 1), {"headers": {1: "v"}}, "headers"),
        (("t", 1), {"headers": {"k": "\ud800"}}, "headers"),
        (("t", 1), {"headers": ["k"]}, "headers"),
        (("\ud800", 1), {}, "type"),
    ],
)
def test_what_cannot_be_packed_is_refused_by_field(
    arguments: tuple[Any, Any], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_body(*arguments, **options)
    assert caught.value.field == field
    assert caught.value.remedy in str(caught.value)


def test_a_payload_without_an_end_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for payload in (loop, deep):
        with pytest.raises(InvalidInput, match="payload"):
            encode_body("t", payload)


def test_a_payload_of_the_limit_passes_and_a_larger_one_does_not() -> None:
    assert len(decoded(encode_body("t", b"x" * MAX_PAYLOAD_BYTES)).payload) == MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadTooLarge, match="enqueue a reference") as caught:
        encode_body("t", b"x" * (MAX_PAYLOAD_BYTES + 1))
    assert (caught.value.size, caught.value.limit) == (MAX_PAYLOAD_BYTES + 1, MAX_PAYLOAD_BYTES)
    with pytest.raises(PayloadTooLarge):
        encode_body("t", "xxx", max_payload_bytes=4)


def test_a_record_of_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"job 'a' has record format 2; this version reads format 1"):
        decoded(b"\x02" + encode_body("t", None)[1:])


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, "text", 0, False, b"", b"\x00\xff", [], 1.5])
def test_a_result_survives_packing(value: object) -> None:
    assert decode_result(encode_result(value)) == value


def test_no_result_is_nothing_and_one_that_was_not_kept_says_why() -> None:
    assert encode_result(None) == b""
    assert decode_result(b"") is None
    with pytest.raises(ResultNotKept, match="it was eaten"):
        decode_result(no_result("was eaten"))
    assert len(no_result("x" * 1000)) == 201
    with pytest.raises(InvalidInput):
        encode_result(object())
    with pytest.raises(ValueError, match="of a kind"):
        decode_result(b"?")
