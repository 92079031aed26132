"""Level 2: a node that runs Pods as local processes.

:class:`ProcessNode` registers a Node, keeps its Lease, and runs each container's command as a process group of its
own, with the environment, volumes, service-account token, probes, signals and status that a kubelet would give it.
There are no namespaces, images or cgroups: an image's name is only recorded, limits are not enforced.
"""

from tests.cluster.node.agent import ProcessNode
from tests.cluster.node.images import Image

__all__ = ["Image", "ProcessNode"]
