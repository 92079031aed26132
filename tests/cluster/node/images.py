"""What a container runs, since there are no images: its own command, or what its image is known to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.cluster.rest import Object


class ImageNotFound(Exception):
    """No image to run: the container has no ``command`` and the node does not know its image, or no registry can."""


@dataclass(frozen=True)
class Image:
    """What a Dockerfile says of a process: ``ENTRYPOINT`` and ``ENV``."""

    entrypoint: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def repository(image: str) -> str:
    """Last path part of an image reference, without tag and digest.

    >>> repository("registry.example:5000/team/headrace-worker:1.2@sha256:ab")
    'headrace-worker'
    """
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


def find(container: Object, images: Mapping[str, Image]) -> Image:
    """The image of a container; its own ``command`` replaces the entrypoint, as in Kubernetes.

    Raises :class:`ImageNotFound`; for every image of a registry ``*.invalid``, a name that nothing can have.
    """
    registry = container["image"].partition("/")[0]
    if registry.endswith(".invalid"):
        raise ImageNotFound(f'failed to pull image "{container["image"]}": no such host: {registry}')
    known = images.get(repository(container["image"]))
    command = container.get("command")
    if command:
        return Image(tuple(command), known.environment if known else {})
    if known is None:
        raise ImageNotFound(
            f'image "{container["image"]}" is unknown to this node and container {container["name"]} has no command;'
            f" known images: {', '.join(sorted(images)) or 'none'}"
        )
    return known
