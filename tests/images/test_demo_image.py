"""The demo's image builds on the workers' and holds its handlers."""

from __future__ import annotations

import os
import uuid

import pytest

from scripts import images

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building and running images needs root"),
    # The first run makes the base image.
    pytest.mark.timeout(900),
]


def test_the_demos_image_holds_its_handlers(built: None) -> None:
    name = f"localhost/headrace-demo-{uuid.uuid4().hex[:8]}"
    base = "BASE_IMAGE=localhost/headrace-worker"
    images.buildah(
        "bud", *images.ISOLATION, "--pull=false", "--build-arg", base,
        "-f", "examples/demo/Dockerfile", "-t", name, "examples",
    )  # fmt: skip
    container = images.buildah("from", "--pull-never", name)
    try:
        code = "from examples.demo.app import app; print(*app.handlers)"
        assert images.buildah("run", *images.ISOLATION, container, "--", "python", "-c", code) == "measure"
    finally:
        images.buildah("rm", container)
        images.buildah("rmi", name)
