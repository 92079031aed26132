"""A cluster and a Redis on this machine, for as long as the demo runs. Needs neither root nor a container engine."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import redis

from examples.demo.kube import Cluster, DemoFailed
from examples.demo.setting import IMAGE, Setting
from tests.cluster.binaries import BinaryError
from tests.cluster.cluster import IMAGES, LocalCluster
from tests.cluster.control_plane import ControlPlaneError
from tests.cluster.node import Image
from tests.services.redis import RedisServer

REPOSITORY = Path(__file__).resolve().parents[2]


def password_protected(server: RedisServer) -> str:
    """Give the server a password and return the URL with it."""
    password = secrets.token_urlsafe(24)
    # Not an option of the server's command line, where every user of the machine could read it.
    with redis.Redis.from_url(server.url) as connection:
        connection.config_set("requirepass", password)
    return server.url.replace("redis://", f"redis://:{password}@")


@contextlib.contextmanager
def embedded_setting() -> Iterator[Setting]:
    """Yield a control plane with one node that runs Pods as processes, and a Valkey with a password.

    The first time on a machine the Kubernetes programs are built, which takes about 8 minutes and says so. Logs stay
    behind if the block fails.
    """
    # What the demo's Dockerfile holds: the worker's command, and the examples where Python finds them.
    worker = Image(IMAGES["headrace-worker"].entrypoint, {"PYTHONPATH": str(REPOSITORY)})
    images = {**IMAGES, IMAGE.partition(":")[0]: worker}
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(RedisServer("valkey"))
            url = password_protected(server)
            local = stack.enter_context(LocalCluster(images=images))
        except (BinaryError, ControlPlaneError, RuntimeError, OSError) as error:
            raise DemoFailed(f"the local cluster does not start: {error}") from error
        yield Setting(
            Cluster(local.environment()),
            url,
            IMAGE,
            "headrace-demo",
            "headrace-system",
            "stdlib",
            own=False,
            logs=local.control_plane.logs,
        )
