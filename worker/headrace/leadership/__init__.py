"""One leader among the workers of a queue: which locks it campaigns with, what it does, and what it tells."""

from headrace.leadership.candidacy import Candidacy
from headrace.leadership.settings import LeaderSettings

__all__ = ["Candidacy", "LeaderSettings"]
