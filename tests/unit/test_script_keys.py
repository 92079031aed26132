"""Every key that a script touches is declared, and in the Cluster form all of them share one slot.

Redis accepts undeclared keys silently on a single node, so the scripts are read, not only run.
"""

import re

import pytest
from redis.crc import key_slot

from headrace.stores.redis.keys import (
    CACHED,
    HINT_KEYS,
    PARTITION_KEYS,
    QUEUE_SCRIPT_KEYS,
    SCRIPT_KEYS,
    SINGLE_KEY_SCRIPTS,
    WAKES,
    Keys,
)
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef

REF = PartitionRef("emails", 3, 17)
SCRIPTS = [*SCRIPT_KEYS, *QUEUE_SCRIPT_KEYS, *SINGLE_KEY_SCRIPTS]
LIST_OF_KEYS = re.compile(r"for \w+, (\w+) in ipairs\(\{([\w, ]+)\}\)")
MAP_OF_KEYS = re.compile(r"local (\w+) = \{\['0'\] = (\w+), \['1'\] = (\w+), \['2'\] = (\w+)\}")
TABLE_OF_KEYS = re.compile(r"local (\w+) = \{([\w, ]+)\}")
MAP_OF_NAMES = re.compile(r"local (\w+) = \{((?:\w+ = [A-Z0-9]+(?:, )?)+)\}")
MAP_LOOP = re.compile(r"for \w+, (\w+) in pairs\(\{\['0'\] = (\w+), \['1'\] = (\w+), \['2'\] = (\w+)\}\)")
SEVERAL_KEYS = {"EXISTS", "UNLINK", "DEL", "RENAMENX"}
ONE_KEY = {
    *("APPEND", "GET", "SET", "TYPE", "PEXPIRE", "PERSIST", "PTTL", "XADD", "XDEL", "XLEN", "XRANGE", "XREVRANGE"),
    *("HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET", "HRANDFIELD", "HSCAN", "HSET", "HSTRLEN"),
    *("LINDEX", "LLEN", "LPOP", "LPOS", "LPUSH", "LRANGE", "LSET", "RPOP", "RPUSH"),
    *("ZADD", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZMSCORE", "ZPOPMIN", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANK"),
    *("ZREM", "ZREMRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZSCAN", "ZSCORE"),
}
"""Commands whose first argument is their only key. What is new belongs here, or to those with several."""
NO_KEYS = {"TIME"}
PAGED = ("audit_", "resume")


def test_key_names_are_remembered_of_a_bounded_number_of_partitions() -> None:
    keys = Keys("p")
    for partition in range(CACHED + 10):
        ref = PartitionRef("emails", 1, partition)
        assert keys.of_script("ack", ref)[0] == keys.partition(ref, "meta")
        assert keys.of_script("ack", ref) is keys.of_script("ack", ref)
    assert len(keys._cache) == CACHED
    assert keys.of_script("ack", PartitionRef("emails", 1, 0))[0] == b"{p:emails:1:0}:meta"


def code_of(name: str) -> str:
    """The source without comments."""
    return re.sub(r"--[^\n]*", "", script(name).source)


def names_of_keys(code: str) -> dict[str, set[int]]:
    """Local names that stand for elements of KEYS, with their positions (from 1)."""
    names: dict[str, set[int]] = {}
    for left, right in re.findall(r"^local ([A-Z0-9_, ]+) = (.+)$", code, re.MULTILINE):
        targets = [part.strip() for part in left.split(",")]
        if re.match(r"unpack\(KEYS", right):
            for position, target in enumerate(targets, 1):
                names[target] = {position}
        else:
            for target, value in zip(targets, right.split(","), strict=False):
                if found := re.fullmatch(r"\s*KEYS\[(\d+)\]\s*", value):
                    names[target] = {int(found[1])}
    for variable, elements in (*LIST_OF_KEYS.findall(code), *TABLE_OF_KEYS.findall(code)):
        parts = [part.strip() for part in elements.split(",")]
        if all(part in names for part in parts):
            names[variable] = names.get(variable, set()).union(*(names[part] for part in parts))
    for found in (*MAP_OF_KEYS.findall(code), *MAP_LOOP.findall(code)):
        if all(part in names for part in found[1:]):
            names[found[0]] = set().union(*(names[part] for part in found[1:]))
    for variable, pairs in MAP_OF_NAMES.findall(code):
        parts = [pair.rpartition(" = ")[2] for pair in pairs.split(", ")]
        if all(part in names for part in parts):
            names[variable] = set().union(*(names[part] for part in parts))
    return names


def calls_of(code: str) -> list[list[str]]:
    """The arguments of every redis.call and redis.pcall, nested ones too."""
    calls = []
    for found in re.finditer(r"redis\.p?call\(", code):
        depth, end, quoted = 1, found.end(), False
        while depth:
            quoted ^= code[end] == "'"
            depth += 0 if quoted else (code[end] == "(") - (code[end] == ")")
            end += 1
        calls.append(split_arguments(code[found.end() : end - 1]))
    return calls


def key_positions(argument: str, names: dict[str, set[int]]) -> set[int]:
    """Positions in KEYS that an argument expression may stand for; empty if it is not a declared key."""
    argument = argument.strip()
    if found := re.fullmatch(r"KEYS\[(\d+)\]", argument):
        return {int(found[1])}
    if found := re.fullmatch(r"unpack\(KEYS, (\d+), (\d+)\)", argument):
        return set(range(int(found[1]), int(found[2]) + 1))
    if found := re.fullmatch(r"unpack\(KEYS, (\d+), #KEYS\)", argument):
        return {int(found[1])}
    if found := re.fullmatch(r"(\w+)\[.+\]", argument):  # a table of lanes
        return names.get(found[1], set())
    return names.get(argument, set())


def split_arguments(text: str) -> list[str]:
    parts, depth, start, quoted = [], 0, 0, False
    for position, character in enumerate(text):
        quoted ^= character == "'"
        depth += 0 if quoted else (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]] if text else []


@pytest.mark.parametrize("name", SCRIPTS)
def test_P3_QE1_QE5_scripts_touch_declared_keys_only(name: str) -> None:
    code = code_of(name)
    # No other way to a key than the one that is looked at below: by a name of its own, or as text.
    assert set(re.findall(r"redis\s*[.\[]\s*(\w+\(?)", code)) <= {"call(", "pcall(", "error_reply("}
    assert not re.search(r"\b(loadstring|load|_G|getfenv|setfenv|dofile)\b|\bredis\b(?!\.)", code)
    names = names_of_keys(code)
    declared = SCRIPT_KEYS.get(name) or QUEUE_SCRIPT_KEYS.get(name) or ("whichever", "its new name")
    hinted = len(declared) + len(HINT_KEYS.get(name, ()))
    used: set[int] = set()
    for quoted, *arguments in calls_of(code):
        command = quoted.strip("' ")
        if command in NO_KEYS:
            continue
        assert quoted == f"'{command}'", f"{quoted}: its keys cannot be told"
        assert command in SEVERAL_KEYS | ONE_KEY, f"{command}: which of its arguments are keys?"
        for argument in arguments if command in SEVERAL_KEYS else arguments[:1]:
            positions = key_positions(argument, names)
            assert positions, f"{command} {argument}: not a declared key"
            assert max(positions) <= hinted, f"{command} {argument}: beyond the declared keys"
            used |= positions
    assert used <= set(range(1, hinted + 1))
    assert not re.search(r"\b(KEYS|SCAN|SSCAN|SMEMBERS|FLUSHALL|EVAL)'", code)
    # With a cursor and a COUNT they are pages; but only where somebody has asked to look at everything.
    pages = re.findall(r"'([HZ]SCAN)', [\w\[\]()]+, (?:ARGV\[\d\]|cursor), 'COUNT', ", code)
    assert len(pages) == len(re.findall(r"'[HZ]SCAN'", code))
    assert not pages or name.startswith(PAGED)


WHOLE = {"HGETALL", "HKEYS", "HVALS", "SMEMBERS", "SORT", "LREM", "LINSERT", "ZUNIONSTORE", "ZREMRANGEBYSCORE"}
"""Commands that go through all of a key, or as much of it as there is."""
SMALL = {
    ("set_aside", "HGETALL"): "only this script adds to it, and never beyond 100",
    ("read_stats", "HGETALL"): "some twenty fields",
    ("read_schedules", "HGETALL"): "schedules are declared in code",
    ("tick", "ZREMRANGEBYSCORE"): "workers that are to claim nothing, of which each is removed once",
    ("stop_claiming", "ZREMRANGEBYSCORE"): "the same",
}
LIMITED = {
    "ZRANGEBYSCORE": "'LIMIT'",
    "ZREVRANGEBYSCORE": "'LIMIT'",
    "ZRANGEBYLEX": "'LIMIT'",
    "LPOS": "'MAXLEN'",
    "XRANGE": "'COUNT'",
    "XREVRANGE": "'COUNT'",
}
BOUNDED = {"ZRANGE", "ZREVRANGE", "LRANGE", "ZREMRANGEBYRANK", "LTRIM"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_M14_no_script_goes_through_all_of_a_key(name: str) -> None:
    """However much there is: what is read has a limit, or is small for a reason that stands above."""
    for quoted, *arguments in calls_of(code_of(name)):
        command = quoted.strip("' ")
        words = [argument.strip() for argument in arguments]
        assert command not in WHOLE or (name, command) in SMALL, f"{command} {words}"
        if command in LIMITED:
            assert LIMITED[command] in words, f"{command} {words}"
        if command in BOUNDED:
            assert words[2] != "-1", f"{command} {words}"


def test_M14_every_reason_is_that_of_a_script() -> None:
    used = {(name, call[0].strip("' ")) for name in SCRIPTS for call in calls_of(code_of(name))}
    assert used >= SMALL.keys()


@pytest.mark.parametrize("name", SCRIPT_KEYS)
def test_QE1_P3_cluster_form_stays_in_one_slot(name: str) -> None:
    keys = Keys("headrace", hinted=False).of_script(name, REF)
    assert len({key_slot(key) for key in keys}) == 1
    assert len(keys) == len(SCRIPT_KEYS[name])


@pytest.mark.parametrize("name", ["enqueue", "probe"])
def test_P4_what_producers_send_has_no_key_with_the_topology(name: str) -> None:
    """Else every enqueue of a queue would read one key, and one node of a Cluster would get them all."""
    hinted = Keys("headrace").of_script(name, REF)
    assert not {key.rpartition(b":")[2] for key in hinted} & {b"topology", b"grave", b"stats"}
    assert "topology" not in code_of(name).lower()


def test_P3_partitions_of_one_queue_lie_in_different_slots() -> None:
    keys = Keys("headrace", hinted=False)
    slots = {key_slot(keys.partition(PartitionRef("emails", 1, number), "meta")) for number in range(64)}
    assert len(slots) > 48


@pytest.mark.parametrize("name", QUEUE_SCRIPT_KEYS)
def test_QE1_queue_scripts_stay_in_one_slot(name: str) -> None:
    assert len({key_slot(key) for key in Keys("headrace").of_queue_script(name, "emails")}) == 1


@pytest.mark.parametrize("name", SCRIPT_KEYS)
def test_J10_what_changes_a_list_is_counted_for_those_who_read_it_page_by_page(name: str) -> None:
    """See lua/lib/anchors.lua. What a claim puts back stands where it stood."""
    code = code_of(name)
    if "'LPOP'" in code:
        assert "'took'" in code
    if re.search(r"'(LPUSH|RPOP|LREM|LSET|LINSERT|LTRIM)'", code) and name != "claim":
        assert "'shifts'" in code


def test_QE5_every_script_documents_its_keys() -> None:
    for name in SCRIPTS:
        source = script(name).source
        for word in ("-- KEYS", "-- ARGV", "-- Returns", "-- Cost"):
            assert word in source, f"{name}.lua lacks {word}"


def test_QE5_remove_declares_every_key_of_a_partition() -> None:
    used = {key for keys in SCRIPT_KEYS.values() for key in keys}
    assert used == set(PARTITION_KEYS) == set(SCRIPT_KEYS["remove"])
    (unlinked,) = (arguments for command, *arguments in calls_of(code_of("remove")) if command == "'UNLINK'")
    assert key_positions(unlinked[0], {}) == set(range(1, len(PARTITION_KEYS) + 1))


def test_J21_deleting_a_queue_declares_every_key_of_it() -> None:
    hinted = {key for keys in HINT_KEYS.values() for key in keys}
    assert {key for keys in QUEUE_SCRIPT_KEYS.values() for key in keys} | hinted == {
        *QUEUE_SCRIPT_KEYS["bury_queue"],
        WAKES,
    }
