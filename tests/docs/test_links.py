"""What the pages name exists: links, headings, files, modules, commands, settings, fields, reasons."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from headrace.cli.main import app
from headrace.stores.base import Counts
from headrace.worker import WorkerSettings
from headrace_operator.api.names import GROUP
from headrace_operator.api.queue_spec import Connection, Limits, QueueSpec, Retry
from headrace_operator.api.queue_status import Phase, QueuePhase, QueueStatus
from headrace_operator.api.scaling_spec import Scaling
from headrace_operator.api.workers_spec import Workers
from headrace_operator.reasons import Reason
from tests.docs.blocks import ROOT, pages

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"\.?[\w.-]+(?:/[\w.*-]+)+/?|[\w-]+\.(?:py|lua|md|toml)|Dockerfile\.\w+")
SUFFIXES = (".py", ".lua", ".md", ".toml", ".yaml")
MADE_LATER = ("build/", "bench/results", "emails/", "dist/")


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCED.sub("", page.read_text())


def codes(page: Path) -> list[str]:
    return CODE.findall(prose(page))


@cache
def files() -> tuple[str, ...]:
    skipped = {".git", ".venv", "build", "node_modules", "__pycache__"}
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return tuple(str(path) for path in found if not skipped & set(path.parts))


def named_paths() -> list[tuple[str, str]]:
    """(page, path) for every inline code that is a path into this repository."""
    tops = {path.name for path in ROOT.iterdir()}
    found = []
    for page in pages():
        for text in codes(page):
            text = text.removeprefix("./")
            ours = text.split("/", 1)[0] in tops if "/" in text else text.endswith(SUFFIXES)
            if PATH.fullmatch(text) and ours and not text.startswith(MADE_LATER):
                found.append((str(page.relative_to(ROOT)), text))
    return found


def test_named_paths_exist() -> None:
    named = named_paths()
    assert len(named) > 50  # the search finds them
    missing = []
    for page, path in named:
        if "/" in path:
            exists = any(ROOT.glob(path)) or any(file.endswith(f"/{path}") for file in files())
        else:
            # A table may say its folder in the head.
            exists = any(file == path or file.endswith(f"/{path}") for file in files())
        if not exists:
            missing.append(f"{page}: {path}")
    assert not missing


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    todo = list(reached)
    while todo:
        page = todo.pop()
        for link in LINK.findall(prose(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                todo.append(target)
    runbooks = ROOT / "docs" / "runbooks"
    unreached = [page for page in pages() if page not in reached and page.parent != runbooks]
    assert [page.name for page in unreached] in ([], ["CHANGELOG.md"])


def test_modules_exist() -> None:
    for page in pages():
        for text in codes(page):
            if re.fullmatch(r"headrace(?:_operator)?(?:\.\w+)+", text) and text != GROUP:
                module, _, name = text.rpartition(".")
                try:
                    importlib.import_module(text)
                except ModuleNotFoundError:
                    assert hasattr(importlib.import_module(module), name), f"{page.name}: {text}"


def test_commands_exist() -> None:
    root = get_command(app)
    seen = set()
    for page in pages():
        for text in codes(page):
            words = text.split()
            if words[0] != "headrace" or len(words) < 2 or words[1].isupper():
                continue
            command = root
            for word in words[1:]:
                children = getattr(command, "commands", None)
                if children is None:
                    break
                assert word in children, f"{page.name}: {text}: no command {word}"
                command = children[word]
            options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
            for word in words:
                assert not word.startswith("--") or word in options, f"{page.name}: {text}: no option {word}"
            seen.add(" ".join(words[1:3]))
    leaves = {
        f"{noun} {verb}".strip()
        for noun, child in root.commands.items()  # type: ignore[attr-defined]
        for verb in getattr(child, "commands", {"": child})
    }
    assert not {leaf for leaf in leaves if not any(use.startswith(leaf.split()[0]) for use in seen)}


def test_every_setting_of_a_worker_is_described() -> None:
    described = set()
    for line in (ROOT / "docs" / "worker.md").read_text().splitlines():
        if "`HEADRACE_" in line and line.startswith("|"):
            described |= set(CODE.findall(line.split("|")[1]))
    assert described == set(WorkerSettings.model_fields)


def test_every_field_of_a_queue_is_described() -> None:
    table = (ROOT / "docs" / "queue.md").read_text().partition("## Fields of the spec")[2].partition("\n## ")[0]
    words = set(re.findall(r"\w+", " ".join(CODE.findall(table))))
    fields = {
        field.alias
        for model in (QueueSpec, Connection, Retry, Limits, Workers, Scaling)
        for field in model.model_fields.values()
    }
    assert fields - words == set()


def test_words_of_the_status_are_those_of_the_code() -> None:
    page = ROOT / "docs" / "queue.md"
    status = page.read_text().partition("## Status")[2]
    words = {text for text in CODE.findall(status) if re.fullmatch(r"[A-Z]\w+", text)}
    conditions = set(re.findall(r"[A-Z]\w+", QueueStatus.model_fields["conditions"].description or ""))
    phases = {*get_args(Phase), *get_args(QueuePhase)}
    assert words <= {*Reason, *phases, *conditions, "True"}
    assert words >= {*phases, *conditions}
    fields = {field.alias for field in QueueStatus.model_fields.values()}
    named = {text.removesuffix("[]") for text in CODE.findall(status)}
    assert fields - named == set()


def test_states_of_a_job_are_those_of_the_store() -> None:
    sizes = set(Counts._fields)
    picture = (ROOT / "README.md").read_text().partition("## How it works")[2]
    for state in ("scheduled", "ready", "leased", "retry", "dead"):
        assert state in sizes
        assert state in picture
