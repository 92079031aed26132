"""KEDA's ExternalScaler service over gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from headrace.errors import HeadraceError, InvalidInput, StoreUnavailable, UnknownQueue
from headrace_operator.keda.demand import Demand, Demands
from headrace_operator.keda.messages import (
    SERVICE,
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from headrace_operator.keda.options import Options
from headrace_operator.keda.wakes import Wakes

LOOK_SECONDS = 10.0
"""A stream looks at its queue so often although nothing woke it: a wake may be lost."""

log = logging.getLogger("headrace.keda")


class ExternalScaler:
    """The calls of the service. ``wakes`` tells queues that were woken, as they are."""

    def __init__(self, demands: Demands, wakes: Wakes) -> None:
        self._demands = demands
        self._wakes = wakes

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler to add to a server."""
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "IsActive": unary(self.is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString),
                "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                    self.stream_is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString
                ),
                "GetMetricSpec": unary(
                    self.get_metric_spec, ScaledObjectRef.FromString, GetMetricSpecResponse.SerializeToString
                ),
                "GetMetrics": unary(
                    self.get_metrics, GetMetricsRequest.FromString, GetMetricsResponse.SerializeToString
                ),
            },
        )

    async def is_active(self, ref: Any, context: Any) -> Any:
        """Say whether there is anything to do: KEDA goes from zero to one, and back after its cool-down."""
        options = await _options(ref, context)
        return IsActiveResponse(result=(await self._demand(options, context)).active)

    async def stream_is_active(self, ref: Any, context: Any) -> AsyncIterator[Any]:
        """Say it now, and again as soon as it changes: a job that wakes the queue need not wait for KEDA's poll.

        That there is something to do is said at every look: KEDA drops what it hears before it has made its HPA, and
        may have gone to zero in a moment without work that no look has met.
        """
        options = await _options(ref, context)
        told: bool | None = None
        with self._wakes.of(options.queue) as woken:
            while True:
                woken.clear()
                try:
                    active = (await self._demands.of(options, fresh=True)).active
                except HeadraceError as error:
                    # KEDA keeps what it was told last; the next look tells it again.
                    log.warning("%s: %s", options.queue, error)
                else:
                    if active or active is not told:
                        told = active
                        yield IsActiveResponse(result=active)
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await woken.wait()
                except TimeoutError:
                    continue

    async def get_metric_spec(self, ref: Any, context: Any) -> Any:
        """Say what the metric is: workers wanted, of which each Pod is one."""
        options = await _options(ref, context)
        spec = MetricSpec(metricName=_metric(options), targetSize=1, targetSizeFloat=1.0)
        return GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: Any, context: Any) -> Any:
        """Say how many workers are wanted."""
        options = await _options(request.scaledObjectRef, context)
        wanted = (await self._demand(options, context)).wanted
        value = MetricValue(metricName=request.metricName, metricValue=wanted, metricValueFloat=float(wanted))
        return GetMetricsResponse(metricValues=[value])

    async def _demand(self, options: Options, context: Any) -> Demand:
        try:
            return await self._demands.of(options)
        except UnknownQueue as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except HeadraceError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError("abort raises")


async def _options(ref: Any, context: Any) -> Options:
    try:
        return Options.of(ref.scalerMetadata)
    except InvalidInput as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{ref.namespace}/{ref.name}: {error}")
    raise AssertionError("abort raises")


def _metric(options: Options) -> str:
    return f"headrace-{options.queue.replace('.', '-')}"
