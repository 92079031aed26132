"""How long a worker Pod that is stopped gets to end: as long as the longest run of the queue, unless somebody said so.

The grace is part of the pod template, and a change of the longest run alone must not restart workers. So what was
derived is kept on the Deployment while Pods of it are there, and derived anew with the next change of the template, or
when none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_operator.api.names import GRACE
from headrace_operator.api.workers_spec import MOST_GRACE, Workers

LEAST_SECONDS = 60
"""What is derived for short runs: leases, results and lifespans want to be ended in order as well."""
WIND_DOWN_SECONDS = 5
"""What a worker needs beyond the time that it gives its handlers: to hand back jobs and to send results."""
KUBERNETES_SECONDS = 30
"""What Pods of a Deployment that says nothing get."""
Body = Mapping[str, Any]


def needed(longest: int) -> int:
    """Return the grace in which a job that runs for ``longest`` seconds ends, as far as there is such a one."""
    return min(MOST_GRACE, longest + WIND_DOWN_SECONDS)


def derived(longest: int) -> int:
    """Return the grace for a queue whose jobs run for ``longest`` seconds at most."""
    return max(LEAST_SECONDS, needed(longest))


def in_force(workers: Workers, longest: int, found: Body | None) -> int:
    """Return the grace of the Pods of ``found``, or that they will get; None: there is no Deployment yet."""
    said = workers.termination_grace_period_seconds
    return said if said is not None else _kept(found) or derived(longest)


def to_render(workers: Workers, longest: int, found: Body | None, *, same_source: bool) -> int:
    """Return the grace to render. ``same_source``: nothing else of the template has changed since ``found`` was."""
    if same_source and found is not None and _has_pods(found):
        return in_force(workers, longest, found)
    return in_force(workers, longest, None)


def of_template(deployment: Body) -> int:
    """Return the grace that any Deployment gives its Pods."""
    spec = deployment.get("spec", {}).get("template", {}).get("spec", {})
    return int(spec.get("terminationGracePeriodSeconds", KUBERNETES_SECONDS))


def _kept(found: Body | None) -> int | None:
    if found is None:
        return None
    # One that was rendered before this was written down has it in its template alone.
    said = str(found["metadata"].get("annotations", {}).get(GRACE) or of_template(found))
    return int(said) if said.isdecimal() and 0 < int(said) <= MOST_GRACE else None


def _has_pods(found: Body) -> bool:
    return bool(found.get("spec", {}).get("replicas", 1) or found.get("status", {}).get("replicas", 0))
