"""kubectl and helm, run as a user would run them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class DemoFailed(Exception):
    """The demo cannot go on, or something that must hold does not; the message says what."""


class Cluster:
    """A cluster through the command line; ``environment`` names it (KUBECONFIG) and where the programs are (PATH)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    async def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl; return what it printed. Raises DemoFailed."""
        return await self._run("kubectl", args, stdin, timeout)

    async def helm(self, *args: str, timeout: float = 120.0) -> str:
        """Run helm; return what it printed. Raises DemoFailed."""
        return await self._run("helm", args, None, timeout)

    async def get(self, namespace: str, *what: str) -> dict[str, Any] | None:
        """Return an object or a list of objects, None if there is no such object."""
        text = await self.kubectl("get", *what, "--namespace", namespace, "--output=json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else None

    async def _run(self, program: str, args: tuple[str, ...], stdin: str | None, timeout: float) -> str:
        shown = " ".join((program, *args))
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *args,
                stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
            )
        except FileNotFoundError:
            raise DemoFailed(f"{program} is not installed; put it on PATH") from None
        try:
            async with asyncio.timeout(timeout):
                out, err = await process.communicate(None if stdin is None else stdin.encode())
        except TimeoutError:
            raise DemoFailed(f"`{shown}` did not end within {timeout:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise DemoFailed(f"`{shown}` ended with exit code {process.returncode}: {err.decode().strip()}")
        return out.decode()


async def until(what: str, seconds: float, look: Callable[[], Awaitable[T | None]], pause: float = 0.1) -> T:
    """Call ``look`` until it returns something true; return that. Raises DemoFailed naming ``what``."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not (found := await look()):
        if loop.time() > end:
            raise DemoFailed(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(pause)
    return found
