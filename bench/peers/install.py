"""Installs the peers by their ordinary package tools, each pinned by a lock, into the cache folder.

The folder is ``peers`` in ``$HEADRACE_CACHE``, by default ``~/.cache/headrace``. What it holds is named after a hash of
the lock, so a changed lock is installed anew and an interrupted installation is never taken for a complete one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.peers.catalog import Kind, Peer
from bench.rig import say
from bench.subject import ROOT, Subject
from tests.cluster import binaries
from tests.cluster.gobuild import BuildError, find_go

SOURCES = ROOT / "bench" / "peers"
INSTALL_SECONDS = 900
COMPLETE = ".complete"


class InstallError(RuntimeError):
    """A peer cannot be installed here; the message says what is missing."""


def cache_folder() -> Path:
    """Return the folder of all installed peers."""
    return binaries.cache_folder() / "peers"


def installed(peer: Peer) -> Subject:
    """Return the peer as a subject; install it first if its lock was not installed before. Raises InstallError."""
    installers: Mapping[Kind, Callable[[Peer], Subject]] = {"python": _python, "node": _node, "go": _go}
    return installers[peer.kind](peer)


def _python(peer: Peer) -> Subject:
    lock = SOURCES / "python" / "locks" / f"{peer.name}.lock"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_folder() / f"{peer.name}-py{version}-{_digest(lock)}"
    python = folder / "bin" / "python"
    if not (folder / COMPLETE).exists():
        _emptied(peer, folder)
        uv = [sys.executable, "-m", "uv"]
        _run(peer, [*uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run(peer, [*uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes", "-r", str(lock)])
        (folder / COMPLETE).touch()
    return Subject(peer.name, (str(python), "-m", f"bench.peers.python.{peer.name}"), share=peer.share)


def _node(peer: Peer) -> Subject:
    node, npm = _tool(peer, "node"), _tool(peer, "npm")
    sources = [SOURCES / "node" / name for name in ("package.json", "package-lock.json")]
    folder = cache_folder() / f"{peer.name}-{_digest(*sources)}"
    if not (folder / COMPLETE).exists():
        _emptied(peer, folder)
        for source in sources:
            shutil.copy(source, folder)
        _run(peer, [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)
        (folder / COMPLETE).touch()
    # Node looks for modules beside the file that imports them.
    program = shutil.copy(SOURCES / "node" / f"{peer.name}.mjs", folder)
    return Subject(peer.name, (node, str(program)), {"NODE_ENV": "production"}, share=peer.share)


def _go(peer: Peer) -> Subject:
    sources = [SOURCES / "go" / name for name in ("go.mod", "go.sum", "main.go")]
    folder = cache_folder() / f"{peer.name}-{_digest(*sources)}"
    if not (folder / COMPLETE).exists():
        try:
            go = find_go(binaries.cache_folder(), say)
        except BuildError as error:
            raise InstallError(f"{peer.name}: {error}") from error
        _emptied(peer, folder)
        build = [str(go.program), "build", "-mod=readonly", "-trimpath", "-o", str(folder / peer.name), "."]
        _run(peer, build, SOURCES / "go", go.env)
        (folder / COMPLETE).touch()
    return Subject(peer.name, (str(folder / peer.name),), share=peer.share)


def _digest(*sources: Path) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _tool(peer: Peer, name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise InstallError(f"{peer.name} needs {name}, which is not on PATH")
    return path


def _emptied(peer: Peer, folder: Path) -> None:
    say(f"bench: installing {peer.name}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _run(peer: Peer, command: list[str], folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{peer.name}: {command[0]} did not end within {INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        words = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise InstallError(f"{peer.name}: {Path(command[0]).name} ended with {done.returncode}: {words}")
