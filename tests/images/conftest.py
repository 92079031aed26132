"""Both images, built once per run, and containers of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import images

ROOT = Path(__file__).resolve().parents[2]
HANDLERS = """
import json
import os

from headrace import App

app = App()


@app.handler("square")
async def square(ctx, payload):
    print("result", json.dumps({"square": payload["n"] ** 2, "pid": os.getpid(), "uid": os.getuid()}), flush=True)
"""


def documented_dockerfiles() -> list[str]:
    """The Dockerfiles that docs/images.md shows: an application's code alone, and with packages of its own."""
    return re.findall(r"```dockerfile\n(.*?)```", (ROOT / "docs" / "images.md").read_text(), re.DOTALL)


@pytest.fixture(scope="session")
def built() -> None:
    """Worker and operator image of this checkout. Fails, and does not skip, if root lacks a program."""
    images.build_all()


@pytest.fixture(scope="session")
def container(built: None) -> Iterator[Callable[[str], str]]:
    """A container of an image, by its name; one per image, since no test changes it. All are removed at the end."""
    made: dict[str, str] = {}

    def make(image: str) -> str:
        if image not in made:
            made[image] = images.buildah("from", "--pull-never", image)
        return made[image]

    yield make
    for name in made.values():
        images.buildah("rm", name)


@pytest.fixture(scope="session", params=documented_dockerfiles(), ids=["code", "packages"])
def application(request: pytest.FixtureRequest, built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Container of an application's image, which is made as docs/images.md tells."""
    context = tmp_path_factory.mktemp("headrace-test-application")
    (context / "emails").mkdir()
    (context / "emails" / "handlers.py").write_text(HANDLERS)
    (context / "requirements.txt").write_text("# packages of the application\n")
    (context / "Dockerfile").write_text(request.param)
    name = f"localhost/{context.name}"
    images.buildah("bud", *images.ISOLATION, "--pull=false", "-t", name, context)
    started = images.buildah("from", "--pull-never", name)
    yield started
    images.buildah("rm", started)
    images.buildah("rmi", name)
