"""Build both images with buildah, without a container engine or an image registry.

The base is `BASE_IMAGE` if set, else a minimal Debian with Python, made once by debootstrap. Storage is a folder of our
own in the cache, so that nothing of the machine's own containers is touched. Needs root on Linux.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from scripts import wheelhouse
from tests.cluster.binaries import cache_folder

ROOT = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
LOCAL_BASE = f"localhost/headrace-base:{SUITE}"
FINGERPRINT_LABEL = "dev.headrace.inputs"
PACKAGES = "python3,python3-venv,ca-certificates"
# Needs no container runtime and no namespaces, which small machines lack.
ISOLATION = ("--isolation", "chroot")


class ImageError(Exception):
    """An image could not be built; says what is missing or which command failed."""


def missing() -> str | None:
    """What this machine lacks to build images, as one sentence; None if nothing."""
    if os.geteuid() != 0:
        return "building images needs root (buildah unpacks a Debian system)"
    lacking = [program for program in ("buildah", "debootstrap") if not shutil.which(program, path=search_path())]
    if lacking:
        return f"building images needs {' and '.join(lacking)}: run make setup as root, or install them"
    return None


def search_path() -> str:
    """PATH with the administrator's folders, where debootstrap lives."""
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def storage() -> Path:
    """Folder of our images and containers."""
    return cache_folder() / "images"


@cache
def storage_driver() -> str:
    """`overlay` where the kernel has it, else `vfs`, which copies whole systems; STORAGE_DRIVER overrides.

    An overlay on an overlay, as inside of a container, is refused by the kernel.
    """
    chosen = os.environ.get("STORAGE_DRIVER")
    if chosen:
        return chosen
    storage().mkdir(parents=True, exist_ok=True)
    below = subprocess.run(["stat", "-f", "-c", "%T", storage()], check=True, capture_output=True, text=True)  # noqa: S603, S607
    known = "overlay" in Path("/proc/filesystems").read_text().split()
    return "overlay" if known and below.stdout.strip() != "overlayfs" else "vfs"


def buildah_command(*arguments: str | Path) -> list[str]:
    """The buildah command line on our own storage; for callers that keep the process."""
    driver = storage_driver()
    folder = storage() / driver
    options = ("--storage-driver", driver, "--root", folder / "storage", "--runroot", folder / "run")
    return ["buildah", *map(str, options), *map(str, arguments)]


def buildah(*arguments: str | Path) -> str:
    """Run buildah on our storage; its output without the last newline. `ImageError` with its messages if it fails."""
    done = subprocess.run(  # noqa: S603
        buildah_command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise ImageError(f"buildah {arguments[0]} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def exists(image: str) -> bool:
    """True if our storage holds the image."""
    command = buildah_command("inspect", "--type", "image", image)
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


@contextmanager
def exclusive() -> Iterator[None]:
    """One build at a time on this storage, over processes."""
    storage().mkdir(parents=True, exist_ok=True)
    with (storage() / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure_base() -> str:
    """Name of the local base image, made if our storage does not hold it; about a minute, once."""
    if exists(LOCAL_BASE):
        return LOCAL_BASE
    print(f"images: making the base with debootstrap ({SUITE}), once; about a minute", flush=True)
    with tempfile.TemporaryDirectory(dir=storage(), prefix="debootstrap-") as folder:
        system = Path(folder) / "system"
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(system)]
        env = {**os.environ, "PATH": search_path()}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise ImageError(f"debootstrap failed with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        for downloaded in (system / "var/cache/apt/archives").glob("*.deb"):
            downloaded.unlink()
        container = buildah("from", "scratch")
        try:
            buildah("copy", container, system, "/")
            buildah("commit", container, LOCAL_BASE)
        finally:
            buildah("rm", container)
    return LOCAL_BASE


def version_of(image: str) -> str:
    """Version of the package that the image is made of."""
    return str(tomllib.loads((ROOT / image / "pyproject.toml").read_text())["project"]["version"])


def fingerprint(image: str, base: str) -> str:
    """Hash of all that an image is made of; requirements.txt holds the hash of every wheel."""
    parts = [Path(f"Dockerfile.{image}"), wheelhouse.WHEELS / image / "requirements.txt"]
    digest = hashlib.sha256(base_identity(base).encode())
    for part in parts:
        digest.update((ROOT / part).read_bytes())
    return digest.hexdigest()


def base_identity(base: str) -> str:
    """Id of a base that our storage holds, else its name."""
    return buildah("images", "--quiet", "--no-trunc", base) if exists(base) else base


def made_of(name: str) -> str | None:
    """The fingerprint that an image was built from; None if there is no such image."""
    if not exists(name):
        return None
    config = json.loads(buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
    return str((config.get("Labels") or {}).get(FINGERPRINT_LABEL))


def build(image: str, base: str) -> str:
    """Build `worker` or `operator` from its collected wheels, if it changed; the image's name."""
    version = version_of(image)
    name = f"localhost/headrace-{image}:{version}"
    inputs = fingerprint(image, base)
    if made_of(name) == inputs:
        return name
    arguments = ("--build-arg", f"BASE_IMAGE={base}", "--build-arg", f"VERSION={version}")
    label = ("--label", f"{FINGERPRINT_LABEL}={inputs}")
    buildah("bud", *ISOLATION, "--pull=false", *label, *arguments, "-f", f"Dockerfile.{image}", "-t", name, ".")
    buildah("tag", name, f"localhost/headrace-{image}:latest")
    return name


def build_all() -> list[str]:
    """Collect the wheels and build both images; their names. `ImageError` says what is missing or failed."""
    lacking = missing()
    if lacking:
        raise ImageError(lacking)
    names = []
    with exclusive():
        wheelhouse.main()
        base = os.environ.get("BASE_IMAGE") or ensure_base()
        for image in ("worker", "operator"):
            started = time.monotonic()
            names.append(build(image, base))
            print(f"images: {names[-1]} ({time.monotonic() - started:.0f} s)", flush=True)
        buildah("rmi", "--prune", "--force")
    return names


if __name__ == "__main__":
    try:
        build_all()
    except ImageError as failure:
        sys.exit(f"images: {failure}")
