"""Named scenarios. ``SMALL`` run in every test run, ``LARGE`` by ``python -m tests.simulation``.

Ids are routed by the real rule: with two partitions ``d`` and ``e`` lie in 0, ``a`` and ``b`` in 1; with four, ``a``
lies in 3, ``b`` in 1, ``d`` in 0, ``e`` in 2; with three, ``a``, ``d`` and ``e`` in 0, ``b`` in 2.
"""

from __future__ import annotations

from tests.simulation.values import Enqueue
from tests.simulation.world import Budget, Setting

A, B = Enqueue("a", 0, given=False), Enqueue("b", 0, given=False)
MINE_0, MINE_1 = Enqueue("a", 0, given=True), Enqueue("a", 1, given=True)

SMALL: dict[str, Setting] = {
    # V1: a job in v1, promoted twice.
    "promote twice": Setting((A,), promoters=(((2, 1), (3, 1)),)),
    # V2: an edit of the settings while jobs wait.
    "edit settings": Setting((A, B), edits=1),
    # V3: a promoter is overtaken by one that promotes the same version and the next; the first is completed meanwhile.
    "slow promoter": Setting((A,), first=None, promoters=(((1, 1),), ((1, 1), (2, 1)))),
    # V4: the same id from a stale and a fresh producer.
    "one id, two producers": Setting((MINE_0, MINE_1), promoters=(((2, 1),),)),
    # V5: a generated id, reply lost, promoted before the resend.
    "lost enqueue reply": Setting((A,), promoters=(((2, 1),),), budget=Budget(lost=1)),
    "late enqueue": Setting((A,), promoters=(((2, 1),),), budget=Budget(late_enqueues=1)),
    # Items of one client call lie apart in v1 and meet in v2.
    "bulk call across a promote": Setting(
        (Enqueue("a", 0, given=False, call=0), Enqueue("d", 0, given=False, call=0)),
        first=(1, 2),
        promoters=(((2, 1),),),
        keepers=0,
    ),
    # V11: nobody but workers; one dies with a lease.
    "no leader": Setting((A,), workers=2, keepers=0, budget=Budget(crashes=1)),
    # V14: the reply of a claim is lost, or the claim arrives after resume.
    "lost claim reply": Setting((A, B), keepers=0, fuses=True, budget=Budget(lost=1)),
    "late claim": Setting((A, B), keepers=0, budget=Budget(late_claims=1)),
    # A worker goes on after its lease ended and another one runs the job.
    "lease ends": Setting((A,), workers=2, keepers=0, budget=Budget(expiries=1)),
    # V12: settings change while a version is promoted, slowly.
    "edit and promote": Setting((), promoters=(((2, 1),), ((2, 1),)), edits=1, workers=0),
    "edit while draining": Setting((A,), promoters=(((2, 1),),), edits=1),
    # Two promoters of one version with different partition counts.
    "two counts": Setting((A,), promoters=(((2, 2),), ((2, 1),)), keepers=1),
    "two counts and an edit": Setting((), promoters=(((2, 1),), ((2, 2),)), edits=1, workers=0),
    "two creators": Setting((A,), first=None, promoters=(((1, 2),), ((1, 1),))),
    # A client sleeps between its tries for longer than completing waits: it is told that the outcome is unknown.
    "client oversleeps": Setting((A,), promoters=(((2, 1),),), oversleeps=True, budget=Budget(lost=1)),
    # An unpromoted version is undone while somebody promotes it - and a still newer one.
    "undone while promoted": Setting((A,), promoters=(((2, 1),),), undo=(2, 1), finishes=True),
    "undone, reply lost": Setting((A,), promoters=(((2, 1),),), undo=(2, 1), keepers=0, budget=Budget(lost=1)),
    "undone and overtaken": Setting((), promoters=(((2, 1), (3, 1)),), undo=(2, 1), workers=0),
    # V13: a failover forgets the last write of the topology, be it a promotion or a step of a completion.
    "forgotten": Setting((A,), promoters=(((2, 1),),), budget=Budget(forgets=1)),
    # Or an edit of the settings, which partitions have taken already; a worker may remember it.
    "settings forgotten": Setting((), first=(1, 2), edits=2, workers=0, budget=Budget(forgets=1)),
    "settings forgotten, remembered": Setting(
        (), edits=2, repeats=False, workers=0, remembers=True, budget=Budget(forgets=1)
    ),
    "settings forgotten, draining": Setting((), promoted=(2, 1), edits=2, workers=0, budget=Budget(forgets=1)),
    # The next edit has the epoch of the forgotten one. What was read of that in between is used after it.
    "one epoch, promoted": Setting(
        (), promoters=(((2, 1),),), edits=2, workers=0, leads=False, budget=Budget(forgets=1)
    ),
    "one epoch, finished": Setting((), edits=2, workers=0, keepers=2, finishes=True, budget=Budget(forgets=1)),
    # V10: a dead letter moves to the active version, its id is free.
    "dead letter": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), fails=True),
    # V8, V9: waiting jobs move to the active version; leader and worker die, a leader was replaced without noticing.
    "move": Setting((A,), promoters=(((2, 2),),), leaders=1, budget=Budget(crashes=2)),
    "move, replaced leader": Setting((A,), promoters=(((2, 1),),), leaders=2, budget=Budget(crashes=1)),
    "move, one id": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), leaders=1),
    "move, two leaders at once": Setting((A, B), promoters=(((2, 1),),), leaders=2, keepers=0, workers=1),
    "move, lost reply": Setting((A,), promoters=(((2, 1),),), leaders=1, budget=Budget(lost=1)),
    # Two completions of one version, and crashes between their steps.
    "two completions": Setting((), promoters=(((2, 1),),), keepers=2, workers=0, budget=Budget(crashes=1)),
    # The queue is deleted, and created again by somebody; who has not heard of it goes on with the old one.
    "deleted": Setting((A,), promoters=(((2, 1),),), keepers=0, deletes=True, budget=Budget(crashes=1)),
    "deleted and created again": Setting((MINE_0,), promoters=(((2, 1),), ((1, 1),)), keepers=0, deletes=True),
    "deleted while drained": Setting((), promoters=(((2, 1), (1, 1)),), workers=0, deletes=True),
    # A promoter dies between two steps, another two partitions.
    "promoter dies": Setting((A,), first=(1, 2), promoters=(((2, 2),),), finishes=True, budget=Budget(crashes=1)),
    # Jobs are taken out by hand: while they run and their lease ends, while they move, under an id that is used again.
    "withdrawn": Setting((A,), workers=2, keepers=0, withdraws=0, budget=Budget(expiries=1)),
    "withdrawn and promoted": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), keepers=0, withdraws=0),
    "withdrawn while it moves": Setting((A,), promoters=(((2, 1),),), leaders=1, withdraws=0),
    "purged": Setting((A, B), workers=2, keepers=0, purges=True, budget=Budget(expiries=1)),
    "purged while they move": Setting((A,), promoters=(((2, 1),),), leaders=1, purges=True, budget=Budget(crashes=1)),
    # A queue that has workers only while there is work. R7.
    "sleeps": Setting((A, B), keepers=0, sleeps=True),
    "sleeps, two partitions": Setting((A, Enqueue("d", 0, given=False)), first=(1, 2), keepers=0, sleeps=True),
    "sleeps, promoted": Setting((A,), promoters=(((2, 1),),), keepers=0, sleeps=True),
    "sleeps, lost enqueue reply": Setting((A,), keepers=0, sleeps=True, budget=Budget(lost=1)),
    "sleeps, lost reply and promoted": Setting(
        (A,), promoters=(((2, 1),),), keepers=0, sleeps=True, budget=Budget(lost=1)
    ),
    "sleeps, producer dies": Setting((A,), keepers=0, sleeps=True, budget=Budget(crashes=1)),
}

UNGUARDED: dict[str, Setting] = {
    # Who edited died, a leader tells partitions of the edit, which is forgotten; an edit since changes nothing stored.
    "settings forgotten, told late": Setting((), edits=1, workers=0, budget=Budget(crashes=1, forgets=1)),
}
"""What the protocol does not guard against: V13 breaks, for a while."""

ONE_OF_EACH = (MINE_0, Enqueue("b", 1, given=True))
"""A job of each of two producers, under ids of their own."""

LARGE: dict[str, Setting] = {
    # The same as small ones, with a crash of anybody at any step, and with more of everything.
    "promote twice, a crash": Setting((A,), promoters=(((2, 1), (3, 1)),), budget=Budget(crashes=1)),
    "one id, edits, a crash": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), edits=2, budget=Budget(crashes=1)),
    "one id, 2 x 2 partitions, a crash": Setting(
        (MINE_0, MINE_1), first=(1, 2), promoters=(((2, 2),),), budget=Budget(crashes=1)
    ),
    "lost reply, 2 x 2 partitions, two workers": Setting(
        (A,), first=(1, 2), promoters=(((2, 2),),), workers=2, budget=Budget(crashes=1, lost=1, expiries=1)
    ),
    "slow promoter of the second version, a crash": Setting(
        (A,), promoters=(((2, 1),), ((2, 1), (3, 1))), budget=Budget(crashes=1)
    ),
    "move, 2 x 2 partitions": Setting((A,), first=(1, 2), promoters=(((2, 2),),), leaders=1, budget=Budget(crashes=2)),
    "dead letter, a crash": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), fails=True, budget=Budget(crashes=1)),
    "edit while draining, a crash": Setting((A,), promoters=(((2, 1),),), edits=1, budget=Budget(crashes=1)),
    "move, one id, a crash": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), leaders=1, budget=Budget(crashes=1)),
    "move, one id, replaced leader": Setting(
        (MINE_0, MINE_1), promoters=(((2, 1),),), leaders=2, budget=Budget(crashes=1)
    ),
    "move, one id, three versions, a crash": Setting(
        (MINE_0, MINE_1), promoters=(((2, 1), (3, 1)),), leaders=1, budget=Budget(crashes=1)
    ),
    "two producers, two workers, 2 x 2 partitions": Setting(
        ONE_OF_EACH, first=(1, 2), promoters=(((2, 2),),), workers=2, budget=Budget(crashes=1, expiries=1)
    ),
    "move, lost reply, replaced leader": Setting(
        (A,), promoters=(((2, 1),),), leaders=2, budget=Budget(crashes=1, lost=1)
    ),
    "three calls, a lost reply, a crash": Setting(
        (MINE_0, MINE_1, B), promoters=(((2, 1),),), budget=Budget(crashes=1, lost=1)
    ),
    "one id, two producers, three versions, a crash": Setting(
        (MINE_0, MINE_1), promoters=(((2, 1), (3, 1)),), budget=Budget(crashes=1)
    ),
    "forgotten, a crash": Setting((A,), promoters=(((2, 1),),), level=True, budget=Budget(crashes=1, forgets=1)),
    "one epoch, promoted, a leader": Setting(
        (), promoters=(((2, 1),),), edits=2, repeats=False, workers=0, budget=Budget(forgets=1)
    ),
    "one epoch, promoted, a crash": Setting(
        (), promoters=(((2, 1),),), edits=2, workers=0, leads=False, budget=Budget(crashes=1, forgets=1)
    ),
    "settings forgotten, promoted": Setting((), promoters=(((2, 1),),), edits=1, workers=0, budget=Budget(forgets=1)),
    "settings forgotten, remembered, two partitions, a crash": Setting(
        (), first=(1, 2), edits=1, workers=0, remembers=True, leads=False, budget=Budget(crashes=1, forgets=1)
    ),
    "move, replaced leader, three versions, a crash": Setting(
        (A,), promoters=(((2, 1), (3, 1)),), leaders=2, budget=Budget(crashes=1)
    ),
    "move, two jobs, 2 x 2 partitions, completed": Setting((A, B), first=(1, 2), promoters=(((2, 2),),), leaders=2),
    "move, slow promoter, lost reply": Setting(
        (A,), promoters=(((2, 1),), ((2, 1), (3, 1))), leaders=1, budget=Budget(lost=1)
    ),
    "dead letter, two completions, a crash": Setting(
        (A,), promoters=(((2, 1), (3, 1)),), keepers=2, fails=True, budget=Budget(crashes=1)
    ),
    "one id, 2 x 2 partitions, two workers, lost reply": Setting(
        (MINE_0, MINE_1), first=(1, 2), promoters=(((2, 2),),), workers=2, budget=Budget(lost=1, expiries=1)
    ),
    # Others.
    "withdrawn, promoted and completed": Setting((MINE_0, MINE_1), promoters=(((2, 1),),), withdraws=0),
    "deleted and created again, two partitions": Setting(
        (MINE_0,), first=(1, 2), promoters=(((2, 1),), ((1, 1),)), deletes=True
    ),
    "slow promoter of the second version": Setting((A,), promoters=(((2, 1),), ((2, 1), (3, 1)))),
    "slow promoter, other counts": Setting((A,), promoters=(((2, 2),), ((2, 1), (3, 1)))),
    "two versions at once": Setting((A,), promoters=(((2, 2),), ((3, 1),))),
    "one id, 2 x 2 partitions, edits": Setting((MINE_0, MINE_1), first=(1, 2), promoters=(((2, 2),),), edits=1),
    "one id, two producers, three versions": Setting((MINE_0, MINE_1), promoters=(((2, 1), (3, 1)),)),
    "two workers, everything lost once": Setting(
        (A, B), promoters=(((2, 1),),), workers=2, keepers=0, fuses=True, budget=Budget(1, 1, 1, 1, 1)
    ),
    "lost reply, 2 x 2 partitions, a crash": Setting(
        (A,), first=(1, 2), promoters=(((2, 2),),), budget=Budget(crashes=1, lost=1)
    ),
    "complete while a promoter sleeps, edits": Setting((A,), promoters=(((2, 1),), ((2, 2),)), edits=1, finishes=True),
    "undone, late": Setting(
        (A,), promoters=(((2, 1), (3, 1)),), undo=(2, 1), finishes=True, budget=Budget(late_enqueues=1)
    ),
    "dead letter, two completions": Setting((A,), promoters=(((2, 1), (3, 1)),), keepers=2, fails=True),
    "move, three versions": Setting((A,), promoters=(((2, 1), (3, 1)),), leaders=1, budget=Budget(crashes=1)),
    "move, one id, three versions": Setting((MINE_0, MINE_1), promoters=(((2, 1), (3, 1)),), leaders=1, keepers=0),
    "move, replaced leader, three versions": Setting((A,), promoters=(((2, 1), (3, 1)),), leaders=2),
    "move, two jobs, 2 x 2 partitions": Setting((A, B), first=(1, 2), promoters=(((2, 2),),), leaders=2, keepers=0),
    "undone, one id": Setting((MINE_0, MINE_1), promoters=(((2, 1), (3, 1)),), undo=(2, 1), finishes=True),
    "sleeps, promoted, two jobs, lost reply, a crash": Setting(
        (A, B), promoters=(((2, 1),),), keepers=0, sleeps=True, budget=Budget(crashes=1, lost=1)
    ),
}
