"""Collect in build/wheels/{worker,operator} what an image installs: our wheels and their locked dependencies.

The dependencies are the part of requirements.lock that the package reaches, with its hashes, so that there is one lock
for development and images. Each folder gets a requirements.txt in which every wheel has its hash; the Dockerfiles
install from it without an index. Wheels are fetched for CPython 3.11 on this machine's platform, the images' Python.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
WHEELS = ROOT / "build" / "wheels"
IMAGE_PYTHON = "3.11"
OURS = {"headrace": ROOT / "worker", "headrace-operator": ROOT / "operator"}


@dataclass(frozen=True)
class Image:
    """An image by its name, with what it installs: a requirement on one of our packages, and those of ours it needs."""

    name: str
    root: str
    packages: tuple[str, ...]


IMAGES = (
    Image("worker", "headrace[fast,kubernetes,mongo,prometheus]", ("headrace",)),
    Image("operator", "headrace-operator[keda]", ("headrace", "headrace-operator")),
)


def lock_blocks(text: str) -> dict[str, str]:
    """Canonical name -> pin and hashes of every package in the lock, without its marker."""
    blocks: dict[str, str] = {}
    for block in re.findall(r"^[A-Za-z0-9].*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL):
        pin, _, hashes = block.partition("\\\n")
        requirement = Requirement(pin)
        blocks[canonicalize_name(requirement.name)] = f"{requirement.name}{requirement.specifier} \\\n{hashes}"
    return blocks


def image_environments() -> list[dict[str, str]]:
    """Marker environments of the images' Python: the first and a late patch release, since both are in use."""
    releases = (f"{IMAGE_PYTHON}.0", f"{IMAGE_PYTHON}.99")
    here = {name: str(value) for name, value in default_environment().items()}
    return [{**here, "python_version": IMAGE_PYTHON, "python_full_version": release} for release in releases]


def reached(root: str) -> set[str]:
    """Canonical names that our package `root` needs on an image, our own packages aside.

    uv resolves it under the lock as constraints, so that versions can only be the locked ones.
    """
    sources = [f"{root} @ file:{OURS[Requirement(root).name].name}", f"headrace @ file:{OURS['headrace'].name}"]
    options = ["--universal", "--python-version", IMAGE_PYTHON, "--no-header", "--no-annotate", "--quiet"]
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join(sources))
        wanted.flush()
        resolved = run("uv", "pip", "compile", *options, "--constraint", LOCK, wanted.name)
    requirements = [Requirement(line) for line in resolved.splitlines() if line and not line.startswith("-")]
    environments = image_environments()
    names: set[str] = {
        canonicalize_name(requirement.name)
        for requirement in requirements
        if requirement.marker is None or any(requirement.marker.evaluate(dict(env)) for env in environments)
    }
    return names - OURS.keys()


def build_own(name: str, into: Path) -> str:
    """Build one of our wheels into a folder; its requirement line with hash."""
    run("uv", "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", into, OURS[name])
    wheel = next(into.glob(f"{name.replace('-', '_')}-*.whl"))
    version = wheel.name.split("-")[1]
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def run(module: str, *arguments: str | Path) -> str:
    """Run a tool of this environment; its standard output. `SystemExit` with its exit code if it fails."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if done.returncode != 0:
        raise SystemExit(f"wheels: {module} {arguments[0]} failed with {done.returncode}")
    return done.stdout


def collect(image: Image, blocks: dict[str, str]) -> Path:
    """Fill the folder of one image anew; returns it."""
    folder = WHEELS / image.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    locked = folder / "requirements.txt"
    locked.write_text("".join(blocks[name] for name in sorted(reached(image.root))))
    platform = ("--only-binary", ":all:", "--python-version", IMAGE_PYTHON)
    run("pip", "download", "--quiet", "--no-deps", "--require-hashes", *platform, "-d", folder, "-r", locked)
    with locked.open("a") as requirements:
        requirements.writelines(build_own(name, folder) for name in image.packages)
    for leftover in folder.glob(".gitignore"):  # uv build writes one
        leftover.unlink()
    return folder


def main() -> None:
    """Collect both folders and say what they hold."""
    blocks = lock_blocks(LOCK.read_text())
    for image in IMAGES:
        folder = collect(image, blocks)
        wheels = list(folder.glob("*.whl"))
        size = sum(wheel.stat().st_size for wheel in wheels)
        print(f"wheels: {folder.relative_to(ROOT)}: {len(wheels)} wheels, {size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
