"""Rules that delay the start of Pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False)
class Delay:
    """Pods of ``namespace`` whose name begins with ``prefix`` wait ``seconds``, or until released if that is None."""

    namespace: str
    prefix: str
    seconds: float | None
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def concerns(self, namespace: str, name: str) -> bool:
        return namespace == self.namespace and name.startswith(self.prefix)


class Gate:
    """Lets Pods start, after the delays that concern them."""

    def __init__(self) -> None:
        self._delays: list[Delay] = []

    def add(self, delay: Delay) -> None:
        self._delays.append(delay)

    def remove(self, delay: Delay) -> None:
        """Pods that come later are not concerned; those that wait without a time go on."""
        self._delays.remove(delay)
        if delay.seconds is None:
            delay.released.set()

    async def admit(self, namespace: str, name: str) -> None:
        """Returns when the Pod may start."""
        for delay in [each for each in self._delays if each.concerns(namespace, name)]:
            if delay.seconds is None:
                await delay.released.wait()
            else:
                await asyncio.sleep(delay.seconds)
