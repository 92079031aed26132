"""The operator with shorter windows before it gives up workers; ``python -m`` runs it.

Tests of whole ways down to zero would else wait for these windows most of the time. How long they are is not theirs to
show: the rules have tests with a clock of their own.
"""

from __future__ import annotations

from headrace_operator.main import main
from headrace_operator.scaling import estimates, history, policy

SHARE, STEP_SHARE = 0.2, 0.5
"""Between two steps, a worker that is told to leave has to learn of it."""


def shorten() -> None:
    """Let the windows of scaling down, and the estimate of arrivals that outlasts them, be shorter."""
    history.WINDOW_MS = round(history.WINDOW_MS * SHARE)
    policy.WATCHED_SECONDS *= SHARE
    policy.STEP_SECONDS *= STEP_SHARE
    estimates.SLOW_SECONDS *= SHARE


if __name__ == "__main__":
    shorten()
    main()
