"""Decides what to do next about one Queue: pure functions from what was observed to steps and findings."""

from headrace_operator.planning.decision import Plan
from headrace_operator.planning.plan import plan

__all__ = ["Plan", "plan"]
