"""Queue.spec.workers: what the worker Pods run and how they are made."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from headrace_operator.api.base import PRESERVE_UNKNOWN, ApiModel, Name, list_map, rules

Argument = Annotated[str, StringConstraints(max_length=4096)]
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Quantities = dict[str, int | Annotated[str, StringConstraints(pattern=QUANTITY)]]
APP_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
RESERVED_VARIABLES = frozenset({"POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE_NAME"})


class EnvVar(ApiModel):
    """One environment variable of the worker container, as in a Pod."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(description="Name of the variable.")
    value: Annotated[str, StringConstraints(max_length=32768)] | None = Field(None, description="Its value.")
    value_from: dict[str, Any] | None = Field(
        None,
        description="Where the value comes from: fieldRef, secretKeyRef, configMapKeyRef or resourceFieldRef, as in a "
        "Pod.",
        json_schema_extra=PRESERVE_UNKNOWN,
    )


class Resources(ApiModel):
    """Compute resources of the worker container, as in a Pod."""

    requests: Quantities | None = Field(None, description="What the scheduler reserves, for example cpu: 100m.")
    limits: Quantities | None = Field(None, description="What the container may use at most.")


class Workers(ApiModel):
    """The Deployment of workers that the operator runs for the queue."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.app) != has(self.command)",
                "workers: set exactly one of app (module:attribute, run by `headrace worker run`) and command",
            )
        )
    )

    image: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="Image of the workers, with the application and the headrace package in it."
    )
    app: Annotated[str, StringConstraints(max_length=512, pattern=APP_PATTERN)] | None = Field(
        None,
        description="The application, module:attribute, run as `headrace worker run <app>`.",
        json_schema_extra=rules(
            (
                f"self.matches('{APP_PATTERN}')",
                "workers.app must be module:attribute, a Python module and the name of the App in it, such as "
                "emails.handlers:app",
            )
        ),
    )
    command: Annotated[list[Argument], Field(min_length=1, max_length=64)] | None = Field(
        None,
        description="Command line that starts a worker, instead of app.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    concurrency: int = Field(16, ge=1, le=4096, description="Jobs that one worker Pod runs at the same time.")
    env: Annotated[list[EnvVar], Field(max_length=256)] = Field(
        default=[],
        description="Environment of the worker container. Names that begin with HEADRACE_, and POD_NAME, "
        "POD_NAMESPACE, POD_IP and NODE_NAME, are set by the operator.",
        json_schema_extra=list_map("name")
        | rules(
            (
                "self.all(e, !e.name.startsWith('HEADRACE_') && !(e.name in ['POD_NAME', 'POD_NAMESPACE', 'POD_IP', "
                "'NODE_NAME']))",
                "workers.env: variables that begin with HEADRACE_, and POD_NAME, POD_NAMESPACE, POD_IP and NODE_NAME, "
                "are set by the operator; choose other names",
            )
        ),
    )
    env_from: Annotated[
        list[Annotated[dict[str, Any], Field(json_schema_extra=PRESERVE_UNKNOWN)]], Field(max_length=64)
    ] = Field(
        default=[],
        description="Secrets and ConfigMaps whose keys become variables, as in a Pod.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    resources: Resources | None = Field(None, description="Compute resources of the worker container.")
    service_account_name: Name | None = Field(
        None,
        description="ServiceAccount of the worker Pods. Unset: <queue>-workers, made by the operator, without any "
        "right.",
    )
    termination_grace_period_seconds: int = Field(
        60, ge=1, le=86400, description="Time that running jobs get to end when a Pod is stopped."
    )

    @model_validator(mode="after")
    def _startable(self) -> Workers:
        if (self.app is None) == (self.command is None):
            raise ValueError("set exactly one of app and command")
        names = [variable.name for variable in self.env]
        reserved = [n for n in names if n.startswith("HEADRACE_") or n in RESERVED_VARIABLES]
        if reserved:
            raise ValueError(f"env: {', '.join(reserved)} are set by the operator; choose other names")
        if len(set(names)) != len(names):
            raise ValueError("env: a name occurs twice")
        return self
