"""For each rule: the scenario that breaks without it, and the property that breaks."""

from __future__ import annotations

from tests.simulation.explorer import STUCK

CAUGHT: dict[str, tuple[str, str]] = {
    "compare_and_set": ("promote twice", "R1 a job is lost in a version that no worker visits"),
    "install_reasserts": ("edit and promote", "V12 "),
    "settle_overwrites": ("two creators", STUCK),
    "settle_creates": ("undone, reply lost", STUCK),
    "mark_creates": ("undone and overtaken", STUCK),
    "tombstones": ("slow promoter", "R1 a job is lost in a version that no worker visits"),
    "discard_needs_empty": ("undone while promoted", "R1 a job is lost"),
    "discard_keeps_nonces": ("undone, reply lost", "R3 one enqueue call was applied twice"),
    "discard_surplus": ("two counts", STUCK),
    "close_needs_empty": ("promote twice", "R4 a closed partition holds a job"),
    "dead_letters_move": ("dead letter", "R1 a dead letter is lost"),
    "dead_letters_need_active": ("dead letter, two completions", "R1 a dead letter is lost"),
    "dead_letters_stand_apart": ("dead letter", "R1 a dead letter is lost"),
    "move_after_marks": ("move, one id, three versions", "R3 an id is live twice"),
    "close_counts_moving": ("move", "R"),
    "arrivals_are_marked": ("move", "R"),
    "target_is_recorded": ("move, three versions", "R"),
    "moves_are_fenced": ("move, replaced leader", "R"),
    "reassert": ("forgotten", STUCK),
    "surpass": ("settings forgotten, remembered", STUCK),
    "edits_surpass": ("settings forgotten", "V13 "),
    "edits_insist": ("one epoch, promoted", "V12 "),
    "known_is_later": ("settings forgotten, remembered", "V12 "),
    "compare_content": ("one epoch, promoted", "V12 "),
    "stamps": ("one epoch, finished", "V12 "),
    "promotes_surpass": ("one epoch, promoted, a crash", "V12 "),
    "reassert_installs": ("settings forgotten, promoted", "V12 "),
    "linger": ("lost enqueue reply", "R3 one enqueue call was applied twice"),
    "graves": ("deleted and created again", STUCK),
    "replaces_earlier": ("deleted and created again", STUCK),
    "enqueue_checks_incarnation": ("deleted and created again", "R1 a job is lost in a version that no worker visits"),
    "mark_spares_later": ("deleted and created again", STUCK),
    "enqueue_checks_state": ("promote twice", "R4 a closed partition holds a job"),
    "probe_caller_ids": ("one id, two producers", "R3 an id is live twice"),
    "probe_marks": ("one id, two producers", "R3 an id is live twice"),
    "probe_lost": ("lost enqueue reply", "R3 one enqueue call was applied twice"),
    "deadline_ends_it": ("client oversleeps", "R3 one enqueue call was applied twice"),
    "remember_nonces": ("lost enqueue reply", "R3 one enqueue call was applied twice"),
    "nonce_per_step": ("bulk call across a promote", "R1 an enqueue call was reported as applied, but was not"),
    "claim_ignores_epoch": ("promote twice", STUCK),
    "claim_every_version": ("bulk call across a promote", STUCK),
    "claim_recovers": ("no leader", STUCK),
    "lease_tokens": ("lease ends", "R2 "),
    "resume_voids": ("late claim", "R5 a job waits for the end of a lease"),
    "withdraw_spares_moving": ("withdrawn while it moves", "R1 a job is in two places"),
    "withdraw_oldest_first": ("withdrawn while it moves", "R8 "),
    "withdraw_reads_again": ("withdrawn while it moves", "R8 "),
    "purge_spares_leased": ("purged", "R2 "),
    "sleep_needs_empty": ("sleeps", "R7 "),
    "sleep_every_version": ("sleeps, promoted", "R7 "),
    "sleep_before_zero": ("sleeps", STUCK),
    "refusal_aborts": ("sleeps", "R7 "),
    "enqueue_wakes": ("sleeps", "R7 "),
    "created_asleep": ("sleeps, promoted", "R7 "),
    "repeat_wakes": ("sleeps, lost enqueue reply", "R7 "),
    "wakes_lead_to_a_look": ("sleeps", "R7 "),
    "sweep": ("sleeps, producer dies", STUCK),
}

CAUGHT_TOGETHER: dict[tuple[str, ...], tuple[str, str]] = {
    ("mark_keeps_epoch", "edits_insist"): ("edit while draining", "V12 "),
    ("move_after_marks", "set_aside_needs_draining"): ("move, one id", "R3 an id is live twice"),
}
"""Rules of which each makes up for the other in a smaller scenario."""

NOT_CAUGHT: dict[str, str] = {
    "closed_before_removing": "what is not closed is not removed either, and completing waits for it then as before; "
    "but the version would be called removing while jobs run in it",
    "mark_keeps_epoch": "whoever edits goes on with what has replaced the edited topology; without both, settings do "
    "not reach a version that was promoted over",
    "set_aside_needs_draining": "a leader marks the older partitions before it sets anything aside; without both an id "
    "lives twice",
    "remove_needs_closed": "complete() removes only what it saw closed, and closed is for ever; REMOVE checks it again "
    "because it is the one step that deletes jobs",
    "enqueue_checks_count": "a version is promoted once, so every topology gives it one partition count; a failover "
    "that forgets a topology could give it a second one",
}
