"""The rules of the store protocol, one switch each. Turning one off gives a mutant (see ``mutants.py``)."""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    """True: the protocol as it is. The comment says what is done instead when a rule is off."""

    # topology
    compare_and_set: bool = True
    """Off: the topology is written whatever is stored."""
    compare_content: bool = True
    """Off: the topology is written if the stored one has the epoch of the one that was read."""
    install_reasserts: bool = True
    """Off: INSTALL creates, but never overwrites a partition that an older promoter left."""
    settle_overwrites: bool = True
    """Off: SETTLE leaves the partition count of a promoter that lost."""
    settle_creates: bool = True
    """Off: SETTLE does not create an absent partition of the active version."""
    mark_creates: bool = True
    """Off: MARK leaves an absent partition absent."""
    mark_keeps_epoch: bool = True
    """Off: MARK raises the partition's epoch, without the settings that belong to it."""
    tombstones: bool = True
    """Off: a removed partition is merely absent."""
    remove_needs_closed: bool = True
    """Off: REMOVE deletes a partition in any state."""
    discard_needs_empty: bool = True
    """Off: DISCARD deletes an active partition with what it holds."""
    discard_keeps_nonces: bool = True
    """Off: DISCARD deletes a partition that still remembers nonces."""
    discard_surplus: bool = True
    """Off: a promoter that lost leaves what it installed."""
    # completing a version
    close_needs_empty: bool = True
    """Off: CLOSE looks at ready jobs only, not at leased ones."""
    closed_before_removing: bool = True
    """Off: a version is completed without the proof that its partitions are closed."""
    dead_letters_move: bool = True
    """Off: a version is completed with its dead letters."""
    dead_letters_need_active: bool = True
    """Off: a dead letter is moved into a partition of whatever state."""
    dead_letters_stand_apart: bool = True
    """Off: a dead letter does not move to where its id is live."""
    linger: bool = True
    """Off: a version is completed while a client may still resend a call from before the mark."""
    # a topology that was forgotten
    reassert: bool = True
    """Off: nobody writes again what partitions remember and the topology has forgotten."""
    surpass: bool = True
    """Off: nobody looks unasked whether partitions go by settings that the topology has forgotten."""
    edits_surpass: bool = True
    """Off: whoever edits the settings does not ask whether the partitions took them."""
    edits_insist: bool = True
    """Off: whoever edits leaves it at that if the topology was replaced before every partition took it."""
    known_is_later: bool = True
    """Off: whoever remembers an older topology than the stored one takes its settings for forgotten ones."""
    stamps: bool = True
    """Off: a partition takes one topology for another one of the same epoch."""
    promotes_surpass: bool = True
    """Off: whoever promotes goes on where a new partition goes by what was forgotten."""
    reassert_installs: bool = True
    """Off: a version that is brought back goes by its older settings until it is settled."""
    # deleting a queue
    graves: bool = True
    """Off: nothing is left of a deleted queue; one that is created again begins at epoch 1."""
    replaces_earlier: bool = True
    """Off: INSTALL, SETTLE, MARK and REMOVE take what an earlier incarnation has left for their own."""
    mark_spares_later: bool = True
    """Off: MARK takes a partition of a later incarnation for one of its own."""
    enqueue_checks_incarnation: bool = True
    """Off: a partition takes jobs of a producer that knows the deleted queue only."""
    # moving jobs
    move_after_marks: bool = True
    """Off: jobs are set aside while an older partition still takes jobs."""
    set_aside_needs_draining: bool = True
    """Off: jobs are set aside in a partition that still takes jobs, too."""
    close_counts_moving: bool = True
    """Off: CLOSE looks neither at jobs set aside nor at marks of arrival."""
    arrivals_are_marked: bool = True
    """Off: ADOPT does not remember what it has adopted."""
    target_is_recorded: bool = True
    """Off: a job set aside goes to whatever version is active when the leader comes to it."""
    moves_are_fenced: bool = True
    """Off: a partition obeys a leader that was replaced."""
    # producing
    enqueue_checks_state: bool = True
    """Off: a draining or closed partition takes jobs."""
    enqueue_checks_count: bool = True
    """Off: a partition takes jobs of a producer that believes in another partition count."""
    probe_caller_ids: bool = True
    """Off: an id given by the caller is not looked up in older versions."""
    probe_marks: bool = True
    """Off: PROBE only looks."""
    probe_lost: bool = True
    """Off: after a lost reply the producer follows the successor without asking the older version."""
    deadline_ends_it: bool = True
    """Off: a producer that slept for longer than a drained version waits takes what it finds for the outcome."""
    remember_nonces: bool = True
    """Off: only the id of a live job tells that a call was applied."""
    nonce_per_step: bool = True
    """Off: all jobs of one client call carry one nonce."""
    # working
    claim_ignores_epoch: bool = True
    """Off: a claim is refused unless worker and partition know the same epoch."""
    claim_every_version: bool = True
    """Off: workers visit the active version only."""
    claim_recovers: bool = True
    """Off: expired leases are left to a leader."""
    lease_tokens: bool = True
    """Off: an acknowledgement counts under whatever token the job is leased."""
    resume_voids: bool = True
    """Off: a claim can still be applied after RESUME said that it was not."""
    # removing jobs by hand
    withdraw_spares_moving: bool = True
    """Off: WITHDRAW removes a job that is set aside to move."""
    withdraw_oldest_first: bool = True
    """Off: whoever withdraws looks at newer versions first, into which a job may move meanwhile."""
    withdraw_reads_again: bool = True
    """Off: whoever withdraws does not ask whether a version was promoted meanwhile."""
    purge_spares_leased: bool = True
    """Off: PURGE removes jobs that run, too."""
    # sleeping
    sleep_needs_empty: bool = True
    """Off: SLEEP puts a partition to sleep whatever it holds."""
    sleep_every_version: bool = True
    """Off: only partitions of the active version are asked whether they may sleep."""
    sleep_before_zero: bool = True
    """Off: the workers go first, then the partitions are put to sleep."""
    refusal_aborts: bool = True
    """Off: the workers go although a partition does not sleep."""
    enqueue_wakes: bool = True
    """Off: ENQUEUE does not say that it found a sleeping partition."""
    created_asleep: bool = True
    """Off: a new partition is awake."""
    repeat_wakes: bool = True
    """Off: what finds a lost call to have been applied does not say that it may have woken its partition."""
    wakes_lead_to_a_look: bool = True
    """Off: what the operator hears while it puts a queue to sleep is forgotten."""
    sweep: bool = True
    """Off: nobody looks after a queue that sleeps unless it is told to."""


PROTOCOL = Rules()
