"""Probes and lifecycle hooks: exec, HTTP and TCP handlers, and the loop that counts their results."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from tests.cluster.rest import Object

# Runs a command in the container's environment; the exit code, or None after the time-out.
Execute = Callable[[list[str], float], Awaitable[int | None]]


@dataclass(frozen=True)
class Target:
    """Where a container's handlers go: its address, its named ports, and how a command is run in it."""

    address: str
    ports: dict[str, int]
    execute: Execute

    def port(self, value: int | str) -> int:
        """A number, or the number of a named port. Raises KeyError."""
        if isinstance(value, int):
            return value
        return int(value) if value.isdigit() else self.ports[value]


async def handle(handler: Object, target: Target, timeout: float) -> str | None:
    """Run one handler (``exec``, ``httpGet``, ``tcpSocket`` or ``sleep``); None if it succeeded, else why not."""
    # Not asyncio.wait_for: before Python 3.12 it swallows a cancellation that meets the end of what it waits for, as
    # when a process ends in the middle of its probe; the probe would go on, and its Pod never end.
    try:
        if "exec" in handler:
            code = await target.execute(handler["exec"]["command"], timeout)
            if code is None:
                return f"command timed out after {timeout:g} s"
            return None if code == 0 else f"command ended with exit code {code}"
        if "sleep" in handler:
            await asyncio.sleep(handler["sleep"]["seconds"])
            return None
        if "httpGet" in handler:
            async with asyncio.timeout(timeout):
                return await _get(handler["httpGet"], target)
        if "tcpSocket" in handler:
            host = handler["tcpSocket"].get("host") or target.address
            port = target.port(handler["tcpSocket"]["port"])
            async with asyncio.timeout(timeout):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return None
    except TimeoutError:
        return f"no answer within {timeout:g} s"
    except (OSError, aiohttp.ClientError) as error:
        return str(error) or type(error).__name__
    except KeyError as error:
        return f"no port named {error}"
    return f"unknown handler: {', '.join(handler)}"


async def _get(handler: Object, target: Target) -> str | None:
    host = handler.get("host") or target.address
    scheme = handler.get("scheme", "HTTP").lower()
    path = handler.get("path", "/")
    url = f"{scheme}://{host}:{target.port(handler['port'])}{path if path.startswith('/') else '/' + path}"
    headers = {"User-Agent": "kube-probe/local"} | {
        each["name"]: each["value"] for each in handler.get("httpHeaders", [])
    }
    context = ssl.create_default_context()
    context.check_hostname = False  # a kubelet does not verify either
    context.verify_mode = ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url, headers=headers, allow_redirects=False) as answer,
    ):
        return None if 200 <= answer.status < 400 else f"HTTP probe failed with statuscode: {answer.status}"


async def watch(
    probe: Object, target: Target, on_result: Callable[[bool, str], Awaitable[None]], *, healthy: bool
) -> None:
    """Run a probe for ever; ``on_result(healthy, why)`` is awaited when a threshold is crossed.

    ``healthy`` is what holds before the first result. A failing probe reports again each time the failure threshold
    is reached anew.
    """
    period = float(probe.get("periodSeconds", 10))
    timeout = float(probe.get("timeoutSeconds", 1))
    needed = {True: int(probe.get("successThreshold", 1)), False: int(probe.get("failureThreshold", 3))}
    await asyncio.sleep(float(probe.get("initialDelaySeconds", 0)))
    handler: Object = {key: probe[key] for key in ("exec", "httpGet", "tcpSocket") if key in probe}
    last, count = healthy, 0
    state = healthy
    while True:
        why = await handle(handler, target, timeout)
        good = why is None
        count = count + 1 if good == last else 1
        last = good
        if count >= needed[good] and (good != state or not good):
            state, count = good, 0
            await on_result(good, why or "")
        await asyncio.sleep(period)
