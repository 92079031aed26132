"""Imports go one way: values <- Redis <- stores <- sequences <- producer <- runtime <- cli; election knows no queue."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "worker" / "headrace"
OPERATOR = ROOT / "operator" / "headrace_operator"

LAYERS = (
    (
        "context",
        "control",
        "envelope",
        "errors",
        "forks",
        "ids",
        "job",
        "job_fields",
        "job_status",
        "leader_term",
        "retry",
        "server_facts",
        "setting_errors",
        "settings",
        "shown_text",
        "queue_file",
        "topology",
        "url_text",
    ),
    ("app", "arguments", "breaker", "dependencies", "handler", "location", "schedules"),
    ("redis",),
    ("stores",),
    (
        "job_spec",
        "finished",
        "agreement",
        "lifecycle",
        "migration",
        "statistics",
        "rotation",
        "connection",
        "drift",
        "pacing",
        "known_queue",
        "remedies",
    ),
    ("inquiry", "waiting", "withdrawal", "pending", "placement", "producer"),
    (
        "sync_producer",
        "dead_letters",
        "parked_jobs",
        "deletion",
        "purging",
        "pausing",
        "live_jobs",
        "audit",
        "dead_letter_lines",
        "queue_apply",
    ),
    ("leadership", "maintenance"),
    ("worker", "telemetry", "diagnosis"),
    ("testing",),
    ("cli", "__main__"),
)
"""Parts of the library; each may import from its own line and from those above it."""
ELECTION_KNOWS = (
    "headrace.election.",
    "headrace.errors.",
    "headrace.redis.",
)
"""Itself, errors, and how Redis is spoken to."""
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}


def imports(path: Path) -> set[str]:
    """Names of all modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part_of(path: Path) -> str:
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


def needed() -> list[tuple[Path, str]]:
    """Every file of the library with each part of the library that it imports."""
    return [
        (path, name.split(".")[1])
        for path in sorted(LIBRARY.rglob("*.py"))
        if path != LIBRARY / "__init__.py"
        for name in sorted(imports(path))
        if name.startswith("headrace.")
    ]


def test_every_part_of_the_library_has_a_place() -> None:
    parts = {part_of(path) for path in LIBRARY.rglob("*.py")}
    assert parts - {"__init__", "election"} <= RANK.keys()


def test_no_part_imports_from_one_above_it() -> None:
    upwards = [
        f"{path.relative_to(ROOT)} imports headrace.{part}"
        for path, part in needed()
        if part_of(path) in RANK and part in RANK and RANK[part] > RANK[part_of(path)]
    ]
    assert upwards == []


def test_election_knows_no_queue() -> None:
    names = {name for path in (LIBRARY / "election").rglob("*.py") for name in imports(path)}
    ours = {name for name in names if name.startswith("headrace")}
    assert ours
    assert {name for name in ours if not name.startswith(ELECTION_KNOWS)} == set()


def test_the_store_protocol_knows_no_backend_and_no_backend_another() -> None:
    stores = LIBRARY / "stores"
    forbidden = {"bounds.py": ("redis", "memory", "protocols", "base"), "protocols": ("redis", "memory", "base")}
    forbidden |= {"base.py": ("redis", "memory"), "redis": ("memory", "base"), "memory": ("redis", "base")}
    found = {
        f"{path.relative_to(stores)} imports {name}"
        for part, others in forbidden.items()
        for path in ([stores / part] if part.endswith(".py") else (stores / part).rglob("*.py"))
        for name in imports(path)
        if name.startswith(tuple(f"headrace.stores.{other}." for other in others))
    }
    assert found == set()


def test_the_library_knows_no_operator() -> None:
    found = [path for path in LIBRARY.rglob("*.py") for name in imports(path) if name.startswith("headrace_operator")]
    assert found == []


def test_what_the_operator_plans_and_renders_knows_no_client() -> None:
    values = ("api", "planning", "workers")
    found = {
        f"{path.relative_to(ROOT)} imports {name}"
        for part in values
        for path in (OPERATOR / part).rglob("*.py")
        for name in imports(path)
        if name.startswith(("headrace_operator.kubernetes.", "headrace_operator.redis.", "redis.", "httpx."))
    }
    assert all((OPERATOR / part).is_dir() for part in values)
    assert found == set()
