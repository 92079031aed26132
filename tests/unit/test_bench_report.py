"""The frame of the benchmarks: statistics, ratios, targets, and the table in the documentation."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from bench import (
    b1_worker_throughput,
    b2_enqueue,
    b4_lateness,
    b5_idle_cost,
    b10_contention,
    b14_scaling_reaction,
    table,
)
from bench.__main__ import benchmarks, chosen_peers
from bench.peers import catalog
from bench.report import OURS, Check, Result, Sample, Series, all_met, fastest, find, markdown, number, ratio
from bench.rig import Case, Rig, percentile
from bench.server import BenchServer
from bench.subject import Subject, SubjectError, Unsupported

ROOT = Path(__file__).resolve().parents[2]


def series(subject: str, *values: float, case: str = "one queue", **facts: float) -> Series:
    samples = [Sample.model_validate({"value": value, "jobs": 100, **facts}) for value in values]
    return Series.of(subject, case, "jobs/s", samples)


def result(checks: list[Check], ours: list[Series], peers: list[Series], id: str = "B1") -> Result:
    return Result(
        id=id,
        title="a title",
        taken_at="2026-01-01 00:00 UTC",
        rounds=3,
        ours=tuple(ours),
        peers=tuple(peers),
        checks=tuple(checks),
        met=all_met(checks),
        missing={"rq": "rq needs a tool, which is not on PATH"},
        versions={"server": "redis 7.0", OURS: "0.1.0"},
        settings={OURS: {"concurrency": 100}},
        machine={"processor": "a processor", "cores": 2, "load_before": 0.1},
    )


def test_a_series_holds_median_and_extremes_of_its_rounds() -> None:
    found = series(OURS, 5.0, 1.0, 9.0, 7.0, client_cpu_us=3.0)
    assert (found.median, found.min, found.max) == (6.0, 1.0, 9.0)
    assert found.client_cpu_us == 3.0
    assert found.redis_cpu_us is None
    assert [sample.value for sample in found.samples] == [5.0, 1.0, 9.0, 7.0]


def test_a_ratio_is_that_of_the_medians_and_unknown_without_a_peer() -> None:
    assert ratio(series(OURS, 1.0, 40.0, 90.0), series("bullmq", 10.0, 1.0, 99.0)) == 4.0
    assert ratio(series(OURS, 1.0), None) is None
    assert ratio(None, series("bullmq", 1.0)) is None
    assert ratio(series(OURS, 1.0), series("bullmq", 0.0)) is None


@pytest.mark.parametrize(
    ("value", "relation", "met"),
    [(3.5, ">=", True), (3.49, ">=", False), (3.5, "<=", True), (3.51, "<=", False), (None, ">=", None)],
)
def test_a_check_is_met_at_its_target(value: float | None, relation: str, met: bool | None) -> None:
    assert Check.of("x", value, ">=" if relation == ">=" else "<=", 3.5).met is met


def test_a_check_against_incomplete_peers_can_fail_but_not_succeed() -> None:
    assert Check.of("x", 25.0, ">=", 20.0, complete=False).met is None
    assert Check.of("x", 15.0, ">=", 20.0, complete=False).met is False


def test_the_whole_is_met_only_if_every_binding_check_is() -> None:
    good, bad, unknown = (Check.of("x", value, ">=", 1.0) for value in (2.0, 0.5, None))
    reported = Check.of("x", 0.1, ">=", 1.0, binding=False)
    assert all_met([good, reported]) is True
    assert all_met([good, bad, unknown]) is False
    assert all_met([good, unknown]) is None
    assert all_met([reported]) is None
    assert all_met([]) is None


def test_the_fastest_peer_is_found_and_a_missing_one_noticed() -> None:
    measured = [series("saq", 2.0), series("arq", 3.0), series("bullmq", 99.0), series("rq", 50.0, case="bulk")]
    assert fastest(measured, ("saq", "arq"), "one queue") == (measured[1], True)
    assert fastest(measured, ("saq", "arq", "rq"), "one queue") == (measured[1], False)
    assert fastest([], ("saq",), "one queue") == (None, False)
    assert find(measured, "rq", "one queue") is None


def test_B1_stays_open_without_peers_and_is_decided_with_all_of_them() -> None:
    ours = series(OURS, 40_000.0, case="p1")
    assert all_met(b1_worker_throughput.checks([ours])) is None
    peers = [series("bullmq", 11_000.0), series("asynq", 8_000.0), series("dramatiq", 1_800.0)]
    slow = [series(name, 1_000.0) for name in b1_worker_throughput.PYTHON_PEERS]
    assert all_met(b1_worker_throughput.checks([ours, *peers, *slow[:-1]])) is None
    assert all_met(b1_worker_throughput.checks([ours, *peers, *slow])) is True
    assert all_met(b1_worker_throughput.checks([ours, *peers, *slow[:-1], series("celery", 2_001.0)])) is False


def test_B2_does_not_hang_on_the_figure_that_is_only_reported() -> None:
    found = [
        *(series(OURS, 1000.0, case=case) for case in ("bulk", "concurrent", "single")),
        series("bullmq", 200.0, case="bulk"),
        series("asynq", 900.0, case="concurrent"),
        series("asynq", 9000.0, case="single"),
    ]
    checks = b2_enqueue.checks(found)
    assert [check.met for check in checks] == [True, True, False]
    assert all_met(checks) is True


def test_B4_is_decided_by_our_99th_percentile_alone() -> None:
    def met(*p99: float) -> bool | None:
        late = [series("asynq", 900.0, case="one queue p99"), series(OURS, 99.0, case="p1 max")]
        cases = zip(("p1", "p8"), p99, strict=False)
        return all_met(b4_lateness.checks([*late, *(series(OURS, ms, case=f"{case} p99") for case, ms in cases)]))

    assert met(10.0, 3.0) is True
    assert met(3.0, 10.1) is False
    assert met(3.0) is None


def test_B5_is_missed_by_one_cell_that_is_dearer_than_the_others() -> None:
    assert all_met(b5_idle_cost.checks([series(OURS, 0.4), series(OURS, 0.6)])) is True
    assert all_met(b5_idle_cost.checks([series(OURS, 0.1), series(OURS, 0.9)])) is False
    assert all_met(b5_idle_cost.checks([])) is None


def test_B10_compares_with_the_best_of_fewer_processes() -> None:
    totals = {1: 100.0, 2: 120.0, 4: 109.0, 8: 107.0}
    found = [series(OURS, value, case=f"workers {count}") for count, value in totals.items()]
    checks = b10_contention.checks(found)
    assert [check.met for check in checks] == [True, True, False]


def test_B14_holds_the_longest_round_and_every_attempt_against_us_but_not_what_was_handed_back() -> None:
    def met(patched: tuple[float, ...], burned: float) -> bool | None:
        counts = {"attempts burned": burned, "runs broken off": 5.0}
        found = [
            series(OURS, *patched, case="from zero to replicas patched"),
            series(OURS, 0.5, case="from zero to first job, without that"),
            *(
                Series.of(OURS, f"8 Pods to 1 by load: {what}", "jobs", [Sample(value=value, jobs=100)] * 2)
                for what, value in counts.items()
            ),
            series("keda", 15.0, case="from zero, polls every 30 s to replicas patched"),
        ]
        checks = b14_scaling_reaction.checks(found, 30)
        assert [check.value for check in checks if "every 30 s" in check.what] == [pytest.approx(15 / found[0].median)]
        return all_met(checks)

    assert met((0.2, 0.3, 1.4), 0) is True
    assert met((0.2, 0.3, 1.6), 0) is False
    assert met((0.2, 0.3, 1.4), 1) is False
    assert all_met(b14_scaling_reaction.checks([], 30)) is None


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)])
def test_a_percentile_is_a_measured_value(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_a_result_is_written_whole_and_read_back(tmp_path: Path) -> None:
    written = result([Check.of("x", 4.0, ">=", 3.5)], [series(OURS, 1.0)], [series("bullmq", 2.0)])
    data, text = written.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["B1.json", "B1.md"]
    assert Result.model_validate_json(data.read_text()) == written
    assert json.loads(data.read_text())["met"] is True
    assert text.read_text() == markdown(written)


def test_the_markdown_shows_figures_verdicts_and_what_is_missing() -> None:
    checks = [Check.of("a / b", 4.0, ">=", 3.5), Check.of("c", None, "<=", 5.0)]
    text = markdown(result(checks, [series(OURS, 41_234.4)], []))
    assert "| headrace | one queue | 100 | 41,234 | 41,234 | 41,234 | jobs/s | – | – |" in text
    assert "| a / b | 4 | >= 3.5 | met |" in text
    assert "| c | – | <= 5 | open |" in text
    assert "All targets: **open**." in text
    assert "- rq: rq needs a tool" in text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0123, "0.0123"), (9.876, "9.88"), (12345.6, "12,346")])
def test_figures_have_three_digits_or_more(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_table_replaces_what_stands_between_its_marks(tmp_path: Path) -> None:
    for id in ("B10", "B2"):
        peers = [series("saq", 2.0, 3.0, case="bulk")]
        result([Check.of(f"check of {id}", 1.0, ">=", 1.0)], [series(OURS, 1.0)], peers, id).write(tmp_path)
    document = tmp_path / "page.md"
    document.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.update(tmp_path, document)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.index("check of B2") < text.index("check of B10")
    assert "| B2 | a title: one queue | 1 (1 .. 1) jobs/s |" in text
    assert "| B2 | saq: bulk | 2.5 (2 .. 3) jobs/s |" in text
    table.update(tmp_path, document)
    assert document.read_text() == text


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="not both there"):
        table.replaced("no marks here", "table")


def test_the_page_describes_every_benchmark_and_has_the_marks() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert list(benchmarks()) == re.findall(r"^\| (B\d+) \| \w", page.partition("## Results")[0], re.MULTILINE)
    assert table.replaced(page, table.rendered(table.results(ROOT / "bench" / "results"))) == page


def test_every_peer_is_pinned_by_a_lock() -> None:
    peers = ROOT / "bench" / "peers"
    for peer in catalog.PEERS.values():
        if peer.kind == "python":
            lock = (peers / "python" / "locks" / f"{peer.name}.lock").read_text()
            assert re.search(rf"^{peer.name}==", lock, re.MULTILINE), peer.name
            assert "://" not in lock
            assert len(re.findall(r"^[a-z]\S*==", lock, re.MULTILINE)) <= lock.count("--hash=sha256:")
        elif peer.kind == "node":
            pinned = json.loads((peers / "node" / "package.json").read_text())["dependencies"]
            locked = json.loads((peers / "node" / "package-lock.json").read_text())["packages"]
            assert pinned[peer.name] == locked[f"node_modules/{peer.name}"]["version"]
            assert not [name for name, package in locked.items() if "resolved" in package]
            assert not [name for name, package in locked.items() if name and "integrity" not in package]
        else:
            assert f"{peer.name} v" in (peers / "go" / "go.mod").read_text()
            assert f"{peer.name} v" in (peers / "go" / "go.sum").read_text()


def test_peers_that_are_left_out_are_named() -> None:
    names, missing = chosen_peers("saq, bullmq", none=False)
    assert names == ["saq", "bullmq"]
    assert set(missing) == set(catalog.PEERS) - {"saq", "bullmq"}
    assert chosen_peers(None, none=False) == (list(catalog.PEERS), {})
    assert chosen_peers(None, none=True)[0] == []
    with pytest.raises(SystemExit, match="no peer is called x"):
        chosen_peers("x,saq", none=False)


def subject(code: str) -> Subject:
    return Subject("peer", (sys.executable, "-c", code))


def test_the_last_line_of_a_subject_is_its_outcome() -> None:
    code = 'import json; print("noise"); print(json.dumps(dict(jobs=3, seconds=1.5, cpu_seconds=0.5, version="1")))'
    outcome = subject(code).run("work", {}, deadline=30)
    assert (outcome.jobs, outcome.seconds, outcome.cpu_seconds) == (3, 1.5, 0.5)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit('no server there')", "ended with 1: no server there"),
        ("print('no json')", "printed no outcome but 'no json'"),
        ("pass", "ended with 0: it said nothing"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
    ],
)
def test_a_subject_that_fails_says_why(code: str, words: str) -> None:
    with pytest.raises(SubjectError, match=re.escape(words)):
        subject(code).run("work", {}, deadline=1 if "sleep" in code else 30)


def test_a_subject_and_all_that_it_started_end_with_its_context() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print('ready', flush=True); p.wait()"
    with subject(code).start("work", {}) as running:
        running.ready()
        group = running.process.pid
        os.killpg(group, 0)
    deadline = time.monotonic() + 10
    while group_exists(group):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_peer_that_fails_or_lacks_something_is_reported_but_a_failure_of_ours_ends_the_run() -> None:
    def fails() -> Sample:
        raise SubjectError("it broke")

    def lacks() -> Sample:
        raise Unsupported("no call that enqueues many")

    def measures() -> Sample:
        return Sample(value=1.0, jobs=1)

    rig = Rig(BenchServer("valkey"), Subject(OURS, ()), [], {}, 2, {})
    try:
        cases = [
            Case(OURS, "a", "jobs/s", measures),
            Case("rq", "a", "jobs/s", fails),
            Case("rq", "b", "jobs/s", measures),
            Case("saq", "a", "ms", lambda: {"p50": measures(), "p99": measures()}),
            Case("arq", "bulk", "jobs/s", lacks),
            Case("arq", "single", "jobs/s", measures),
        ]
        found = rig.interleaved(cases)
        assert [(one.subject, one.case, len(one.samples)) for one in found] == [
            (OURS, "a", 2),
            ("saq", "a p50", 2),
            ("saq", "a p99", 2),
            ("arq", "single", 2),
        ]
        assert rig.missing == {"rq": "it broke", "arq, bulk": "no call that enqueues many"}
        with pytest.raises(SubjectError):
            rig.interleaved([Case(OURS, "a", "jobs/s", fails)])
    finally:
        rig.server.__exit__(None, None, None)
