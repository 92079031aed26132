"""The checked-in CustomResourceDefinitions are those of the models, and structural."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_operator.crds import queue_crd, queue_version_crd, render_files

ROOT = Path(__file__).resolve().parents[3]


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node with its path, e.g. ``spec.workers.env[]``."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}" if path else name)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], path + suffix)


@pytest.mark.parametrize("path", sorted(render_files()))
def test_checked_in_files_are_those_of_the_models(path: str) -> None:
    assert (ROOT / path).read_text() == render_files()[path], "run `make crds` and commit the result"


@pytest.mark.parametrize("crd", [queue_crd(), queue_version_crd()], ids=lambda crd: crd["spec"]["names"]["kind"])
def test_every_node_is_structural_and_every_field_is_described(crd: dict[str, Any]) -> None:
    for path, node in nodes(schema_of(crd)):
        assert not {"$ref", "title", "const", "$defs", "oneOf"} & node.keys(), path
        assert "type" in node or "x-kubernetes-int-or-string" in node, path
        if path and not path.endswith(("[]", "{}")) and path not in {"spec", "status", "metadata"}:
            assert node.get("description"), f"{path} has no description"


@pytest.mark.parametrize("crd", [queue_crd(), queue_version_crd()], ids=lambda crd: crd["spec"]["names"]["kind"])
def test_every_rule_says_which_field_and_what_to_do(crd: dict[str, Any]) -> None:
    messages = [rule for _, node in nodes(schema_of(crd)) for rule in node.get("x-kubernetes-validations", [])]
    assert messages
    for rule in messages:
        # What an expression says has to begin with the plain message, which is told should it ever fail.
        said = rule.get("messageExpression", "'" + rule["message"])
        assert said.startswith("'" + rule["message"].partition(";")[0])
        assert len(rule["message"]) > 30
        assert any(word in rule["message"] for word in ("set", "must", "choose", "cannot", "may", "never")), rule


def test_the_chart_can_leave_the_definitions_out_and_keeps_them_on_uninstall() -> None:
    text = (ROOT / "charts/headrace/templates/crds/queues.headrace.dev.yaml").read_text()
    assert "{{- if .Values.crds.enabled }}" in text
    assert "helm.sh/resource-policy: keep" in text
    plain = "".join(line for line in text.splitlines(keepends=True) if "{{" not in line)
    parsed = yaml.safe_load(plain)
    parsed["metadata"].pop("annotations")
    assert parsed == queue_crd()
