"""What a ScaledObject says in the metadata of its trigger."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from headrace.errors import InvalidInput
from headrace.topology import check_queue_name
from headrace_operator.scaling import Rules


class Options(BaseModel):
    """Metadata of a trigger, in camel case; what other parts of KEDA put there is left alone.

    The bounds of the number are those of the ScaledObject, and so is the time before it goes down or to zero.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    queue: str = Field(min_length=1, description="Name of the queue in Redis.")
    slots: int | None = Field(
        None, ge=1, le=65536, description="Jobs that one Pod runs at a time. Unset: what the workers say of themselves."
    )
    target_wait_seconds: float = Field(10, gt=0, le=86_400, description="How long jobs should wait at most.")
    keep_warm_seconds: float = Field(0, ge=0, le=86_400, description="A job that is due within this time is work.")
    headroom: float = Field(1.0, ge=0, le=100, description="As scaling.headroom of a Queue.")
    cold_start_seconds: float = Field(10, ge=1, le=300, description="How long a Pod takes to become ready.")

    @staticmethod
    def of(metadata: Mapping[str, str]) -> Options:
        """Read the metadata. Raises InvalidInput, which names the field."""
        try:
            options = Options.model_validate(dict(metadata))
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in detail["loc"])
            raise InvalidInput(f"metadata.{field}", detail["msg"], "correct the trigger of the ScaledObject") from None
        check_queue_name(options.queue)
        return options

    @property
    def rules(self) -> Rules:
        """The rules of the policy; the number is limited elsewhere."""
        return Rules(
            max_replicas=10_000, target_wait=self.target_wait_seconds, headroom=self.headroom, fallback_replicas=0
        )
