"""Jobs of types that no worker knows: they wait apart, and somebody has to be told."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_operator.observed import Backend
from headrace_operator.reasons import Finding, Reason

SHOWN = 3
_LONGEST_NAME = 60


def parked(backend: Backend) -> Finding | None:
    """Say which types are parked in any version; None if no job is.

    The message holds no numbers, so that it stays the same while more jobs come.
    """
    types = {kind: jobs for version in backend.parked.values() for kind, jobs in version.items()}
    return Finding(Reason.JOBS_PARKED, f"jobs wait apart because {unknown_types(types)}") if types else None


def unknown_types(types: Mapping[str, int]) -> str:
    """Return the clause that names the types, and what to do."""
    names = sorted(types)
    shown = ", ".join(repr(name[:_LONGEST_NAME]) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"no worker knows the type {shown}{more}; deploy a worker that does, or give the type up with "
        "`headrace type delete`"
    )
