"""The command ``headrace-keda``: an external scaler for KEDA, for the queues of one Redis."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable
from importlib.metadata import version as installed_version

from headrace.connection import explain
from headrace.errors import HeadraceError, InvalidInput
from headrace.setting_errors import InvalidSettings
from headrace.stores.base import Store
from headrace_operator.keda.settings import KedaSettings

GRACE_SECONDS = 3.0

log = logging.getLogger("headrace.keda")


async def serve(
    store: Store, address: str, stop: asyncio.Event, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Serve until ``stop`` is set. Raises InvalidInput if the address cannot be used."""
    import grpc

    from headrace_operator.keda.demand import Demands
    from headrace_operator.keda.service import ExternalScaler
    from headrace_operator.keda.wakes import Wakes

    wakes = Wakes(store)
    # The default lets several processes share a port, and a second one starts in silence.
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((ExternalScaler(Demands(store, clock), wakes).handler(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise InvalidInput("HEADRACE_KEDA_ADDRESS", f"{address} cannot be served on", "choose a free one") from None
    await server.start()
    log.info("headrace-keda serves %s", address if not address.endswith(":0") else f"port {port}")
    listening = asyncio.create_task(wakes.run())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((listening, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        listening.cancel()
        await server.stop(GRACE_SECONDS)
        results = await asyncio.gather(listening, stopped, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def run(settings: KedaSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = settings.open_store()
    try:
        await store.check()
        await serve(store, settings.keda_address, stop)
    finally:
        await store.close()


def main() -> None:
    """Run it; exit 1 with one line if it cannot start, 2 if its settings are wrong."""
    parser = argparse.ArgumentParser(
        prog="headrace-keda",
        description="External scaler for KEDA. Settings come from the environment, HEADRACE_...",
    )
    parser.add_argument("--version", action="version", version=installed_version("headrace-operator"))
    parser.parse_args()
    try:
        settings = KedaSettings()
    except InvalidSettings as error:
        for line in explain(error):
            print(f"headrace-keda: {line}", file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run(settings))
    except ImportError:
        print("headrace-keda: needs the extra: pip install 'headrace-operator[keda]'", file=sys.stderr)
        sys.exit(1)
    except HeadraceError as error:
        print(f"headrace-keda: {error}", file=sys.stderr)
        sys.exit(1)
