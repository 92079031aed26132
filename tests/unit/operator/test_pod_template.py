"""spec.workers.podTemplate over the rendered pod template."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from headrace_operator.planning import plan
from headrace_operator.reasons import Reason
from headrace_operator.workers.pod_template import TemplateRefused, merge_template
from headrace_operator.workers.render import render_deployment
from tests.unit.operator.scene import backend, known, observed, queue, queue_version, topology

RENDERED: dict[str, Any] = {
    "metadata": {"labels": {"headrace.dev/queue": "mail"}},
    "spec": {
        "serviceAccountName": "mail-workers",
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "worker",
                "image": "mail:1",
                "env": [{"name": "HEADRACE_QUEUES", "value": "mail"}, {"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "redis", "mountPath": "/etc/headrace/redis", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "redis", "secret": {"secretName": "redis"}}],
    },
}


def merged(**spec: Any) -> dict[str, Any]:
    before = copy.deepcopy(RENDERED)
    result: dict[str, Any] = merge_template(RENDERED, {"metadata": {}, "spec": spec})["spec"]
    assert before == RENDERED, "the rendered template is not changed"
    return result


def test_maps_are_merged_field_by_field_and_null_takes_a_field_away() -> None:
    spec = merged(
        securityContext={"runAsUser": 7, "seccompProfile": None},
        serviceAccountName=None,
        nodeSelector={"disk": "fast"},
        affinity={"nodeAffinity": {"x": [1, 2]}},
    )
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 7}
    assert "serviceAccountName" not in spec
    assert (spec["nodeSelector"], spec["affinity"]) == ({"disk": "fast"}, {"nodeAffinity": {"x": [1, 2]}})
    assert spec["terminationGracePeriodSeconds"] == 60


def test_lists_with_a_merge_key_are_merged_item_by_item_and_others_replaced() -> None:
    spec = merged(
        containers=[
            {"name": "proxy", "image": "proxy:2"},
            {
                "name": "worker",
                "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "securityContext": {"readOnlyRootFilesystem": True},
            },
        ],
        volumes=[{"name": "data", "emptyDir": {}}, {"name": "redis", "configMap": {"name": "other"}}],
        tolerations=[{"key": "spot", "operator": "Exists"}],
    )
    worker, proxy = spec["containers"]
    assert worker["env"] == [
        {"name": "HEADRACE_QUEUES", "value": "mail"},
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
    ]
    assert worker["image"] == "mail:1"
    assert [mount["mountPath"] for mount in worker["volumeMounts"]] == ["/etc/headrace/redis", "/data"]
    assert proxy == {"name": "proxy", "image": "proxy:2"}
    # Two sources in one volume would be refused, so the whole item counts.
    assert spec["volumes"] == [{"name": "redis", "configMap": {"name": "other"}}, {"name": "data", "emptyDir": {}}]
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"spec": {"terminationGracePeriodSeconds": 5}}, "set spec.workers.terminationGracePeriodSeconds instead"),
        ({"metadata": {"labels": {"headrace.dev/queue": "x"}}}, "headrace.dev/queue is set by the operator"),
        ({"spec": {"containers": [{"image": "x"}]}}, r"spec.containers\[0\]: has no name"),
        ({"spec": {"containers": ["worker"]}}, r"spec.containers\[0\]: has no name"),
        ({"spec": {"volumes": [{"name": {}}]}}, r"spec.volumes\[0\]: has no name"),
        ({"spec": {"containers": [{"name": "worker", "env": [{"name": "HEADRACE_X"}]}]}}, "variable HEADRACE_X"),
        ({"spec": {"containers": [{"name": "worker", "env": [{"name": "POD_IP"}]}]}}, "variable POD_IP"),
        ({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, r"spec.containers.\$patch: is a directive"),
    ],
)
def test_what_the_operator_decides_or_cannot_merge_is_refused_with_the_field(
    template: dict[str, Any], said: str
) -> None:
    with pytest.raises(TemplateRefused, match=said):
        merge_template(RENDERED, template)


def test_labels_and_annotations_are_added_and_a_label_of_the_same_value_is_none_of_a_problem() -> None:
    given = {"labels": {"team": "a", "headrace.dev/queue": "mail"}, "annotations": {"prometheus.io/scrape": "true"}}
    assert merge_template(RENDERED, {"metadata": given})["metadata"] == given


def test_a_template_that_cannot_be_merged_stalls_the_workers_and_not_the_topology() -> None:
    v1 = topology({1: (4, "active")})
    template = {"spec": {"terminationGracePeriodSeconds": 5}}
    spec = queue(workers={"image": "w", "app": "a:b", "podTemplate": template}, status=known())
    planned = plan(observed(spec, backend(v1), queue_version(1)))
    assert planned.stalled is not None
    assert planned.stalled.reason is Reason.INVALID_POD_TEMPLATE
    assert planned.stalled.message.startswith("spec.workers.podTemplate.spec.terminationGracePeriodSeconds: ")
    bumped = queue(2, 8, workers={"image": "w", "app": "a:b", "podTemplate": template}, status=known())
    assert len(plan(observed(bumped, backend(v1), queue_version(1))).steps) == 1


def test_what_is_merged_is_applied_and_its_change_alone_is_a_change() -> None:
    def rendered(**template: Any) -> dict[str, Any]:
        spec = queue(workers={"image": "w", "app": "a:b", **({"podTemplate": template} if template else {})})
        assert spec.spec is not None
        assert spec.spec.workers is not None
        return render_deployment(spec, spec.spec.workers, backend(topology({1: (4, "active")})), None)

    plain, changed = rendered(), rendered(spec={"priorityClassName": "high"})
    assert changed["spec"]["template"]["spec"]["priorityClassName"] == "high"
    assert plain["metadata"]["annotations"] != changed["metadata"]["annotations"]
