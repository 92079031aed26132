"""Queue.spec.workers: what the worker Pods run and how they are made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from headrace_operator.api.base import PRESERVE_UNKNOWN, ApiModel, Name, list_map, rules

Argument = Annotated[str, StringConstraints(max_length=4096)]
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Quantities = dict[str, int | Annotated[str, StringConstraints(pattern=QUANTITY)]]
APP_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
MOST_GRACE = 86_400
"""Seconds: the longest grace of a Pod that is stopped."""
RESERVED_VARIABLES = frozenset({"POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE_NAME"})


def is_reserved(variable: str) -> bool:
    """Whether the operator alone sets the variable in the worker container."""
    return variable.startswith("HEADRACE_") or variable in RESERVED_VARIABLES


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


class TemplateMetadata(ApiModel):
    """Labels and annotations of the worker Pods, beside those of the operator."""

    labels: Annotated[dict[str, Annotated[str, StringConstraints(max_length=63)]], Field(max_length=64)] = Field(
        default={}, description="Labels; those that the operator sets cannot be changed."
    )
    annotations: Annotated[dict[str, Annotated[str, StringConstraints(max_length=65536)]], Field(max_length=64)] = (
        Field(default={}, description="Annotations.")
    )


class PodTemplate(ApiModel):
    """What is merged over the pod template that the operator renders."""

    metadata: TemplateMetadata = Field(default=TemplateMetadata(), description="Labels and annotations of the Pods.")
    spec: dict[str, Any] = Field(
        default={},
        description="A Pod's spec, merged over the rendered one as `kubectl patch --type=strategic` does it: maps "
        "field by field, null takes a field away; containers, initContainers, volumes, env, ports, volumeMounts and "
        "the like item by item, told apart by their published merge keys (mostly name); other lists are replaced. "
        "The container of the workers is named worker.",
        json_schema_extra=PRESERVE_UNKNOWN,
    )


class ScaleTarget(ApiModel):
    """An object with replicas."""

    api_version: Literal["apps/v1"] = Field("apps/v1", description="API version of the object.")
    kind: Literal["Deployment"] = Field("Deployment", description="Kind of the object.")
    name: Name = Field(description="Name of the object, in the Queue's namespace.")


class Workers(ApiModel):
    """The workers of the queue: a Deployment that the operator makes, or one that it scales only."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.image) != has(self.scaleTargetRef)",
                "workers: set exactly one of image (the operator makes the Deployment) and scaleTargetRef (it scales "
                "one that is there)",
            ),
            (
                "has(self.scaleTargetRef) ? !has(self.app) && !has(self.command) : has(self.app) != has(self.command)",
                "workers: set exactly one of app (module:attribute, run by `headrace worker run`) and command; with "
                "scaleTargetRef none of them",
            ),
        )
    )

    image: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = Field(
        None,
        description="Image of the workers, with the application and the headrace package in it. The operator makes "
        "the Deployment <queue>-workers.",
    )
    scale_target_ref: ScaleTarget | None = Field(
        None,
        description="Instead of image: a Deployment of yours that runs the workers. The operator sets its replicas "
        "and nothing else; of the other fields of workers only concurrency counts, its jobs per Pod, until its workers "
        "say that themselves.",
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
    metrics: Literal["none", "prometheus", "otel"] = Field(
        "none",
        description="What the workers tell about themselves. prometheus: /metrics on the port health; otel: recorded "
        "with OpenTelemetry. The image needs headrace[prometheus] or headrace[otel] then.",
    )
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
    termination_grace_period_seconds: int | None = Field(
        None,
        ge=1,
        le=MOST_GRACE,
        description="Time that a Pod which is stopped gets to end. Unset: what timeoutSeconds asked for, and 60 at "
        "least, when the workers were rendered last; a change of timeoutSeconds alone restarts nobody.",
    )
    pod_template: PodTemplate | None = Field(
        None,
        description="Merged over the pod template that the operator renders: volumes, affinity, tolerations, "
        "sidecars, annotations, security context and whatever else a Pod may have.",
    )

    @model_validator(mode="after")
    def _startable(self) -> Workers:
        if (self.image is None) == (self.scale_target_ref is None):
            raise ValueError("set exactly one of image and scaleTargetRef")
        if self.scale_target_ref is not None and (self.app is not None or self.command is not None):
            raise ValueError("app and command do not go with scaleTargetRef")
        if self.image is not None and (self.app is None) == (self.command is None):
            raise ValueError("set exactly one of app and command")
        names = [variable.name for variable in self.env]
        reserved = [name for name in names if is_reserved(name)]
        if reserved:
            raise ValueError(f"env: {', '.join(reserved)} are set by the operator; choose other names")
        if len(set(names)) != len(names):
            raise ValueError("env: a name occurs twice")
        return self
