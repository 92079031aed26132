"""Handlers of a worker that is stopped get the Pod's grace, less what the worker itself needs to end."""

from __future__ import annotations

import pytest

from headrace_operator.observed import Backend, QueueObject
from headrace_operator.render import render_deployment


@pytest.mark.parametrize(("pod", "handlers"), [(60, "55"), (3600, "3595"), (1, "0")])
def test_J17_handlers_get_the_pods_grace_less_the_wind_down(pod: int, handlers: str) -> None:
    queue = QueueObject.parse(
        {
            "metadata": {"namespace": "team", "name": "emails", "uid": "u", "resourceVersion": "1"},
            "spec": {
                "version": 1,
                "partitions": 1,
                "workers": {"image": "emails:1", "app": "emails:app", "terminationGracePeriodSeconds": pod},
            },
        }
    )
    backend = Backend("redis:6379/0", "mark", None, secret=("headrace-redis", "url"))
    assert queue.spec is not None
    assert queue.spec.workers is not None
    template = render_deployment(queue, queue.spec.workers, backend, None)["spec"]["template"]["spec"]
    (container,) = template["containers"]
    assert template["terminationGracePeriodSeconds"] == pod
    assert {"name": "HEADRACE_GRACE_SECONDS", "value": handlers} in container["env"]
