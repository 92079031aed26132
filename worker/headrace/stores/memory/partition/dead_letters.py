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

    def adopt(self, letters: Sequence[DeadLetter]) -> None:
        """Take over dead letters of another partition; of an id that died here at the same time, a ms later."""
        for letter in letters:
            own = letter
            while (known := self._letters.get(own.letter)) is not None and known.record != own.record:
                died_at = own.died_at + 1
                own = own._replace(letter=b"%b@%d" % (own.stored_id, died_at), died_at=died_at)
            self._letters[own.letter] = own

    def page(self, after: DeadLetter | None, limit: int) -> list[DeadLetter]:
        """Return the oldest dead letters after one that was seen."""
        letters = (letter for letter in self._letters.values() if after is None or letter.order > after.order)
        return heapq.nsmallest(limit, letters, key=lambda letter: letter.order)

    def find(self, ids: Sequence[bytes], since: int) -> dict[bytes, DeadLetter]:
        """Return the newest letter of each id, among those that died at ``since`` or later."""
        wanted = set(ids)
        letters = sorted(self._letters.values(), key=lambda letter: letter.order)
        return {each.stored_id: each for each in letters if each.died_at >= since and each.stored_id in wanted}

    def drop_beyond(self, limit: int | None, most: int) -> int:
        """Drop at most ``most`` of the oldest letters, so that ``limit`` are left; the number of them."""
        over = 0 if limit is None else min(most, len(self._letters) - limit)
        if over <= 0:
            return 0
        return self.remove([letter.letter for letter in self.page(None, over)])

    def remove(self, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        return sum(self._letters.pop(letter, None) is not None for letter in letters)
