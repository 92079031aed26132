"""Whether the Redis of a queue keeps what it has taken."""

from __future__ import annotations

from headrace_operator.observed import Backend, Observed
from headrace_operator.reasons import Finding, Reason


def unsafe_redis(observed: Observed) -> Finding | None:
    """Return what of the server's settings endangers jobs; None if nothing does, or if it is not known."""
    backend, spec = observed.backend, observed.queue.spec
    if not isinstance(backend, Backend) or not backend.unsafe:
        return None
    strict = spec is not None and spec.connection is not None and spec.connection.strict
    told = ". ".join(backend.unsafe)
    return Finding(Reason.UNSAFE_REDIS, f"{told}{'. spec.connection.strict refuses it' if strict else ''}")
