"""Where the demo runs: a cluster made for it, or the user's own."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from examples.demo.kube import Cluster, DemoFailed

IMAGE = "headrace-demo:local"


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster with a Redis that this process and its Pods can reach.

    ``logs`` is a folder with the logs of an embedded cluster; ``own``: the cluster is the user's, so that the demo has
    to clean up after itself.
    """

    cluster: Cluster
    redis_url: str = field(repr=False)
    image: str
    namespace: str
    queue: str
    own: bool
    logs: Path | None = None


def own_setting(environment: Mapping[str, str] = os.environ) -> Setting | None:
    """Return the user's cluster if ``DEMO_KUBECONFIG``, ``DEMO_IMAGE`` and ``DEMO_REDIS_URL`` name one, else None.

    Raises DemoFailed if only some of them are set.
    """
    names = ("DEMO_KUBECONFIG", "DEMO_IMAGE", "DEMO_REDIS_URL")
    missing = [name for name in names if not environment.get(name)]
    if len(missing) == len(names):
        return None
    if missing:
        raise DemoFailed(f"{', '.join(missing)} is not set; set all of {', '.join(names)}, or none for a local cluster")
    config = Path(environment["DEMO_KUBECONFIG"]).expanduser()
    if not config.is_file():
        raise DemoFailed(f"DEMO_KUBECONFIG: {config} is not a file; give a kubeconfig")
    cluster = Cluster(dict(environment) | {"KUBECONFIG": str(config)})
    run = secrets.token_hex(3)  # so that nothing of an earlier run is met
    return Setting(
        cluster,
        environment["DEMO_REDIS_URL"],
        environment["DEMO_IMAGE"],
        f"headrace-demo-{run}",
        f"stdlib-{run}",
        own=True,
    )


@contextlib.contextmanager
def open_setting() -> Iterator[Setting]:
    """Yield the user's cluster, or one that lives as long as the block."""
    own = own_setting()
    if own is not None:
        yield own
        return
    # It needs the test harness, which a user's own cluster does not.
    from examples.demo.embedded import embedded_setting

    with embedded_setting() as setting:
        yield setting
