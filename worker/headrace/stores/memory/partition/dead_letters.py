"""The dead letters of one partition in memory."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from headrace.stores.protocols.dead_letters import DeadLetter


class DeadLetters:
    """Letter -> the job that has no further run."""

    def __init__(self) -> None:
        self._letters: dict[bytes, DeadLetter] = {}

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, stored_id: bytes, now: int, record: bytes, changes: bytes) -> None:
        """Keep a job that died now; ids may die again, so a letter is an id and a time that it has for itself."""
        died_at = now
        while (letter := b"%b@%d" % (stored_id, died_at)) in self._letters:
            died_at += 1
        self._letters[letter] = DeadLetter(letter, died_at, record, changes)

    def page(self, after: DeadLetter | None, limit: int) -> list[DeadLetter]:
        """Return the oldest dead letters after one that was seen."""
        letters = (letter for letter in self._letters.values() if after is None or letter.order > after.order)
        return heapq.nsmallest(limit, letters, key=lambda letter: letter.order)

    def remove(self, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        return sum(self._letters.pop(letter, None) is not None for letter in letters)
