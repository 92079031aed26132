"""What scaling remembers of a queue from look to look: one text in Redis, so that a new operator forgets nothing."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from headrace_operator.scaling.estimates import Arrivals, Service
from headrace_operator.scaling.history import History


@dataclass(frozen=True, slots=True)
class Record:
    """``cold_starts``: seconds that the last Pods took to become ready, oldest first.

    ``tried``: names the template whose Pods have last been ready, so that they took out what they know of parked jobs.
    """

    history: History = History()
    arrivals: Arrivals = Arrivals()
    service: Service = Service()
    cold_starts: tuple[float, ...] = ()
    tried: str = ""

    def to_json(self) -> str:
        """Return it as text."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str | bytes | None) -> Record:
        """Read what `to_json` wrote; of anything else, nothing is remembered."""
        if not text:
            return Record()
        try:
            record: Record = _ADAPTER.validate_json(text)
        except ValidationError:
            return Record()
        return record


_ADAPTER: TypeAdapter[Record] = TypeAdapter(Record)
