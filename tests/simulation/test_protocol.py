"""The store protocol holds in every small scenario, and each rule is there because a scenario breaks without it.

The large scenarios run by ``make model``.
"""

from __future__ import annotations

import pytest

from tests.simulation.checking import check
from tests.simulation.mutants import CAUGHT, CAUGHT_TOGETHER, NOT_CAUGHT
from tests.simulation.rules import PROTOCOL, Rules
from tests.simulation.scenarios import LARGE, SMALL, UNGUARDED
from tests.simulation.world import Model, describe

VERIFIED = {
    "promote twice": "V1",
    "edit settings": "V2",
    "slow promoter": "V3",
    "one id, two producers": "V4",
    "lost enqueue reply": "V5",
    "move": "V6",
    "move, one id": "V8",
    "move, replaced leader": "V9",
    "no leader": "V11",
    "edit and promote": "V12",
    "forgotten": "V13",
    "settings forgotten": "V13",
    "settings forgotten, remembered": "V13",
    "settings forgotten, draining": "V13",
    "one epoch, promoted": "V12",
    "one epoch, finished": "V12",
    "lost claim reply": "V14",
    "sleeps": "O20",
}

PROVED = {
    "claim_every_version",
    "claim_ignores_epoch",
    "tombstones",
    "probe_caller_ids",
    "probe_marks",
    "probe_lost",
    "remember_nonces",
    "linger",
    "close_counts_moving",
    "arrivals_are_marked",
    "target_is_recorded",
    "move_after_marks",
    "moves_are_fenced",
    "claim_recovers",
    "install_reasserts",
    "reassert",
    "surpass",
    "edits_surpass",
    "known_is_later",
    "compare_content",
    "stamps",
    "promotes_surpass",
    "edits_insist",
    "resume_voids",
    "sleep_needs_empty",
    "sleep_before_zero",
    "refusal_aborts",
    "enqueue_wakes",
    "wakes_lead_to_a_look",
}
"""Rules whose need is shown by a test with the id of the scenario."""

EDITS = ("mark_keeps_epoch", "edits_insist")


def _holds(name: str) -> None:
    found = check(SMALL[name])
    assert found.violation is None, f"{found.violation}\n{describe(Model(SMALL[name]), found.trace)}"
    assert found.complete


def _catches(rule: str) -> None:
    _breaks(*CAUGHT[rule], rule)


def _breaks(name: str, expected: str, *without: str) -> None:
    found = check({**SMALL, **LARGE}[name], PROTOCOL._replace(**dict.fromkeys(without, False)))
    assert found.violation is not None
    assert found.violation.startswith(expected)


def test_V1_model_jobs_of_a_version_two_promotions_back_are_claimed() -> None:
    _holds("promote twice")
    _catches("claim_every_version")


def test_V2_model_an_edit_of_the_settings_stops_no_claim() -> None:
    _holds("edit settings")
    _catches("claim_ignores_epoch")


def test_V3_model_a_slow_promoter_revives_no_completed_version() -> None:
    _holds("slow promoter")
    _catches("tombstones")


def test_V4_model_an_id_lives_once_over_all_versions() -> None:
    _holds("one id, two producers")
    _catches("probe_caller_ids")
    _catches("probe_marks")


def test_V5_model_a_lost_reply_enqueues_once() -> None:
    _holds("lost enqueue reply")
    _catches("probe_lost")
    _catches("remember_nonces")
    _catches("linger")


def test_V6_V7_model_a_move_that_is_interrupted_neither_loses_nor_doubles_a_job() -> None:
    _holds("move")
    _catches("close_counts_moving")
    _catches("arrivals_are_marked")


def test_V8_model_a_job_lands_once_whatever_is_promoted_meanwhile() -> None:
    _holds("move, one id")
    _catches("target_is_recorded")
    _catches("move_after_marks")


def test_V9_model_a_replaced_leader_moves_nothing() -> None:
    _holds("move, replaced leader")
    _catches("moves_are_fenced")


def test_V11_model_claims_recover_without_a_leader() -> None:
    _holds("no leader")
    _catches("claim_recovers")


def test_V12_model_settings_changed_during_a_promote_hold_in_the_new_version() -> None:
    _holds("edit and promote")
    _catches("install_reasserts")
    _breaks(*CAUGHT_TOGETHER[EDITS], *EDITS)


def test_V12_model_two_topologies_of_one_epoch_are_told_apart() -> None:
    """A failover forgets an edit, and the next one gets its epoch: what was read of the first brings nothing back."""
    for name in ("one epoch, promoted", "one epoch, finished"):
        _holds(name)
    for rule in ("compare_content", "stamps", "promotes_surpass", "edits_insist"):
        _catches(rule)


def test_V13_model_a_write_of_the_topology_that_was_forgotten_is_made_again() -> None:
    _holds("forgotten")
    _catches("reassert")


def test_V13_model_no_partition_goes_on_with_settings_that_were_forgotten() -> None:
    """In the end all go by what is stored, and an edit reaches all; what somebody remembers is no older than that."""
    for name in ("settings forgotten", "settings forgotten, remembered", "settings forgotten, draining"):
        _holds(name)
    for rule in ("surpass", "edits_surpass", "known_is_later"):
        _catches(rule)


def test_V14_model_a_lost_claim_is_resumed() -> None:
    _holds("lost claim reply")
    _catches("resume_voids")


def test_O20_model_no_job_waits_unheard_in_a_queue_without_workers() -> None:
    _holds("sleeps")
    for rule in ("sleep_needs_empty", "sleep_before_zero", "refusal_aborts", "enqueue_wakes", "wakes_lead_to_a_look"):
        _catches(rule)


@pytest.mark.parametrize("name", [name for name in SMALL if name not in VERIFIED])
def test_the_protocol_holds(name: str) -> None:
    _holds(name)


@pytest.mark.parametrize("name", UNGUARDED)
def test_what_is_said_not_to_be_guarded_breaks(name: str) -> None:
    """Once it is guarded, it belongs to the others, and the docs are to say so."""
    assert (check(UNGUARDED[name]).violation or "").startswith("V13 ")


LONG = {"dead_letters_need_active"}
"""Mutants that take long to catch; `make model` does."""


@pytest.mark.parametrize("rule", [rule for rule in CAUGHT if rule not in PROVED | LONG])
def test_a_scenario_breaks_without_the_rule(rule: str) -> None:
    _catches(rule)


@pytest.mark.parametrize("without", [rules for rules in CAUGHT_TOGETHER if rules != EDITS], ids=" and ".join)
def test_a_scenario_breaks_without_both_rules(without: tuple[str, ...]) -> None:
    _breaks(*CAUGHT_TOGETHER[without], *without)


def test_every_rule_has_a_mutant_or_a_reason() -> None:
    assert {*CAUGHT, *NOT_CAUGHT} == set(Rules._fields)


@pytest.mark.parametrize("rule", NOT_CAUGHT)
def test_a_rule_said_to_be_redundant_is_redundant_here(rule: str) -> None:
    for name in ("slow promoter", "two creators", "undone and overtaken", "lost enqueue reply", "move, one id"):
        assert check(SMALL[name], PROTOCOL._replace(**{rule: False})).violation is None
