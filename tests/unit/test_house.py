"""The rules of the repository that no other tool checks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.wheelhouse import lock_blocks

ROOT = Path(__file__).resolve().parents[2]
LONGEST_MODULE = 450
CODE_FOLDERS = ("worker", "operator", "tests", "bench", "examples", "scripts")
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
# Written so that no pattern matches this file, and no name stands in it.
REGISTRIES = (
    "py|pi",
    "python|hosted",
    "npm|js",
    "proxy[.]go|lang",
    "sum[.]go|lang",
    "crates|",
    "deb[.]debian|",
    "maven|",
)
FORBIDDEN = {
    "host of a package registry": (
        r"\b(?:[a-z0-9-]+[.])*(?:" + "|".join(name.replace("|", "") for name in REGISTRIES) + r")[.](?:org|io)\b"
    ),
    "path of one machine": r"(?<![\w.~}-])/(?:root|work|home)/[\w.]",
    "folder outside the repository": r"shared[/]design",
    "unfinished work": r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b",
}


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def pyproject(folder: str) -> dict[str, object]:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert isinstance(project, dict)
    return project


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_contains(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        lines = enumerate(text.splitlines(), start=1)
        found += [f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in lines if pattern.search(line)]
    assert found == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("host of a package registry", "index = https://pypi" + ".org/simple"),
        ("path of one machine", "cd /ro" + "ot/project"),
        ("folder outside the repository", "see shared/" + "design/x.md"),
        ("unfinished work", "# TO" + "DO: later"),
    ],
)
def test_each_forbidden_pattern_finds_what_it_is_for(what: str, text: str) -> None:
    assert re.search(FORBIDDEN[what], text)


def test_the_lock_names_no_url_and_gives_each_package_a_hash() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    blocks = lock_blocks(text)
    assert blocks
    assert [name for name, block in blocks.items() if "--hash=sha256:" not in block] == []


def test_the_lock_satisfies_every_declared_dependency() -> None:
    pins = {
        name: Requirement(block.partition(" ")[0])
        for name, block in lock_blocks((ROOT / "requirements.lock").read_text()).items()
    }
    unsatisfied = []
    for requirement in declared_by("everything"):
        name = canonicalize_name(requirement.name)
        if name == "headrace":
            continue
        pin = pins.get(name)
        version = None if pin is None else next(iter(pin.specifier)).version
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            unsatisfied.append(f"{requirement} (locked: {version}); run make lock")
    assert unsatisfied == []


@pytest.mark.parametrize("folder", ["worker/headrace", "operator/headrace_operator", "tests", "scripts", "examples"])
def test_every_imported_package_is_declared(folder: str) -> None:
    package = folder.partition("/")[0]
    itself = {"worker": ["headrace"], "operator": ["headrace-operator"]}.get(package, ["headrace", "headrace-operator"])
    declared = {*itself, *(canonicalize_name(each.name) for each in declared_by(package))}
    # Editable installs do not list their modules.
    ours = {"headrace": ["headrace"], "headrace_operator": ["headrace-operator"]}
    installed = {**packages_distributions(), **ours}
    undeclared = {}
    for path in (ROOT / folder).rglob("*.py"):
        for name in imported(path) - sys.stdlib_module_names - {"bench", "tests", "scripts", "examples"}:
            distributions = {canonicalize_name(each) for each in installed.get(name, ["nothing that is installed"])}
            if not distributions & declared:
                undeclared[str(path.relative_to(ROOT))] = f"imports {name}, which {distributions} brings"
    assert undeclared == {}


def imported(path: Path) -> set[str]:
    """Top-level names that a module imports absolutely."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def declared_by(folder: str) -> list[Requirement]:
    """Dependencies that a package declares; those of everything for any other folder."""
    if folder in ("worker", "operator"):
        project = pyproject(folder)
        dependencies, extras = project["dependencies"], project.get("optional-dependencies", {})
        assert isinstance(dependencies, list)
        assert isinstance(extras, dict)
        return [Requirement(text) for text in [*dependencies, *(text for group in extras.values() for text in group)]]
    development = [
        Requirement(line)
        for line in (ROOT / "requirements.in").read_text().splitlines()
        if line and not line.startswith("#") and " @ " not in line
    ]
    return [*development, *declared_by("worker"), *declared_by("operator")]


def test_every_module_reads_in_one_sitting() -> None:
    code = [path for path in tracked() if path.suffix in {".py", ".lua", ".sh"}]
    assert code
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in code}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_every_file_and_folder_has_a_name_that_tells() -> None:
    vague = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if VAGUE_NAMES & {part.removesuffix(path.suffix) for part in path.relative_to(ROOT).parts}
    ]
    assert vague == []


def test_the_folder_operator_does_not_hide_the_standard_library() -> None:
    found = PathFinder.find_spec("operator", [str(ROOT), sysconfig.get_path("stdlib")])
    assert found is not None
    assert found.origin == str(Path(sysconfig.get_path("stdlib")) / "operator.py")
    started = "import operator; print(operator.__file__)"
    ran = subprocess.run([sys.executable, "-c", started], cwd=ROOT, check=True, capture_output=True, text=True)
    assert Path(ran.stdout.strip()).is_relative_to(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_the_make_commands_of_the_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    named = {target for block in code for target in re.findall(r"(?<![\w-])make ([a-z][a-z-]*)", block)}
    assert named
    assert named - make_targets() == set()


def test_make_alone_lists_every_command() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    listed = set(re.findall(r"^  ([a-z-]+) ", shown, re.MULTILINE))
    assert listed == make_targets()


def test_packages_images_and_chart_carry_one_version() -> None:
    version = pyproject("worker")["version"]
    assert pyproject("operator")["version"] == version
    dependencies = pyproject("operator")["dependencies"]
    assert isinstance(dependencies, list)
    assert f"headrace=={version}" in dependencies
    for image in ("worker", "operator"):
        assert f"ARG VERSION={version}\n" in (ROOT / f"Dockerfile.{image}").read_text()
    chart = yaml.safe_load((ROOT / "charts" / "headrace" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_licence_is_the_one_that_the_packages_name() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert {pyproject(folder)["license"] for folder in ("worker", "operator")} == {"Apache-2.0"}


def test_the_full_check_runs_lint_tests_and_demo() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert {"setup", "lint", "test", "demo"} <= set(re.findall(r"make ([a-z]+)", script.read_text()))
