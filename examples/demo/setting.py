"""Where the demo runs: a cluster made for it, or the user's own."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from examples.demo.kube import Cluster, DemoFailed

IMAGE = "headrace-demo:local"


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster with a Redis that this process and its Pods can reach.

    ``own``: the cluster is the user's, so that the demo has to clean up after itself. ``operator_image``: instead of
    the chart's. ``logs``: folder with the logs of an embedded cluster.
    """

    cluster: Cluster
    redis_url: str = field(repr=False)
    image: str
    namespace: str
    operator_namespace: str
    queue: str
    own: bool
    operator_image: str = ""
    logs: Path | None = None


def own_setting(environment: Mapping[str, str] = os.environ) -> Setting | None:
    """Return the user's cluster if ``DEMO_KUBECONFIG``, ``DEMO_IMAGE`` and ``DEMO_REDIS_URL`` name one, else None.

    ``DEMO_OPERATOR_IMAGE`` is taken instead of the chart's image, if the operator has to be installed. Raises
    DemoFailed if only some of the three are set.
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
        f"headrace-demo-{run}-operator",
        f"stdlib-{run}",
        own=True,
        operator_image=environment.get("DEMO_OPERATOR_IMAGE", ""),
    )


@contextlib.contextmanager
def open_setting(say: Callable[[str], None]) -> Iterator[Setting]:
    """Yield the user's cluster, or one that lives as long as the block; ``say`` tells which."""
    own = own_setting()
    if own is not None:
        say(f"using the cluster of DEMO_KUBECONFIG, namespace {own.namespace}")
        yield own
        return
    say("starting a Kubernetes control plane with one node, and Redis")
    # It needs the test harness, which a user's own cluster does not.
    from examples.demo.embedded import embedded_setting

    with embedded_setting() as setting:
        yield setting
