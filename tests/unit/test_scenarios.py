"""docs/scenarios.md holds every scenario, and agrees with the tests' names."""

from __future__ import annotations

from pathlib import Path

from scripts.scenario_map import DOCUMENT, IDS, TESTS, Row, find_tests, ids_of, parse, problems, update

LINE = "| J2 | refused by token | `a.py::test_J2_x` |  |"
ROW = Row("J2", "refused by token", ("a.py::test_J2_x",), "")


def complete(*rows: Row) -> list[Row]:
    given = {row.id for row in rows}
    return [*rows, *(Row(id, "holds", (), "not yet: later") for id in IDS if id not in given)]


def test_the_document_agrees_with_the_tests() -> None:
    assert problems(parse(DOCUMENT.read_text()), find_tests(TESTS)) == []


def test_a_line_is_read_and_written_back_the_same() -> None:
    assert parse(LINE) == [ROW]
    assert update(LINE, {"J2": ["a.py::test_J2_x"]}) == LINE + "\n"


def test_a_row_that_gets_its_first_test_is_covered_in_part_until_someone_says_more() -> None:
    filled = parse(update("| J2 | holds |  | not yet: killed workers |", {"J2": ["a.py::test_J2_x"]}))
    assert filled == [Row("J2", "holds", ("a.py::test_J2_x",), "in part: killed workers")]


def test_ids_are_read_from_any_place_of_a_name() -> None:
    assert ids_of("test_V1_T9_claims_go_on") == ["V1", "T9"]
    assert ids_of("test_store_J2_late_ack") == ["J2"]
    assert ids_of("test_version_1_of_X9") == []


def test_functions_and_methods_are_found_where_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "suite.py").write_text(
        "class Suite:\n    async def test_J2_J3_late(self): ...\ndef test_J2_plain(): ...\n"
    )
    assert find_tests(tmp_path) == {
        "J2": ["suite.py::test_J2_J3_late", "suite.py::test_J2_plain"],
        "J3": ["suite.py::test_J2_J3_late"],
    }


def test_an_agreeing_table_has_no_problems() -> None:
    assert problems(complete(ROW), {"J2": ["a.py::test_J2_x"]}) == []


def test_each_disagreement_is_named() -> None:
    gone = problems(complete(ROW), {})
    assert gone == ["J2 names a.py::test_J2_x, which does not exist; run make scenarios"]
    unlisted = problems(complete(), {"J2": ["a.py::test_J2_x"]})
    assert unlisted == ["J2 does not name a.py::test_J2_x; run make scenarios"]
    unexplained = problems(complete(Row("J2", "holds", (), "")), {})
    assert unexplained == ["J2 has neither a test nor a reason 'not yet: ...'"]
    stale = problems(complete(Row("J2", "holds", ("a",), "not yet: later")), {"J2": ["a"]})
    assert stale == ["J2 has tests; its last column may only say what they leave open ('in part: ...')"]
    assert problems(complete()[1:], {}) == ["T1 has no row"]
    assert problems([*complete(), Row("J2", "holds", (), "not yet: later")], {}) == ["J2 has 2 rows"]
    assert problems([*complete(), Row("X1", "holds", (), "not yet: later")], {}) == ["X1 is no known scenario"]
