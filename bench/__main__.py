"""Command line: ``python -m bench B1``, ``python -m bench table``, ``python -m bench install``."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from types import ModuleType

from bench import machine, table
from bench.ours import subject as ours_subject
from bench.peers import catalog, install
from bench.report import markdown
from bench.rig import Rig, say
from bench.server import BenchServer
from bench.subject import ROOT

RESULTS = ROOT / "bench" / "results"


def benchmarks() -> dict[str, str]:
    """Return the module of every benchmark by its id, in order."""
    found = {path.stem.partition("_")[0].upper(): path.stem for path in (ROOT / "bench").glob("b[0-9]*_*.py")}
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Headrace beside its peers.")
    parser.add_argument("what", choices=[*benchmarks(), "table", "install"], help="a benchmark, or what to do")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--jobs", type=int, help="jobs of ours; slow peers get a share (default: the benchmark's)")
    parser.add_argument("--peers", help="names, comma-separated (default: all)")
    parser.add_argument("--no-peers", action="store_true", help="ours only; targets against peers stay open")
    parser.add_argument("--server", choices=["redis", "valkey"], help="default: redis-server if installed, else Valkey")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results (default bench/results)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of one benchmark")
    return parser


def chosen_peers(names: str | None, none: bool) -> tuple[list[str], dict[str, str]]:
    """Return the names of the peers to run, and why the others are not."""
    known = list(catalog.PEERS)
    if none:
        return [], dict.fromkeys(known, "left out by --no-peers")
    if names is None:
        return known, {}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := sorted(set(wanted) - set(known)):
        raise SystemExit(f"bench: no peer is called {', '.join(unknown)}; there are {', '.join(known)}")
    return wanted, {name: "left out by --peers" for name in known if name not in wanted}


def main() -> None:
    """Run one benchmark and write its result, or do what is asked instead."""
    given = arguments().parse_args()
    if given.what == "table":
        table.update(RESULTS, ROOT / "docs" / "benchmarks.md")
        return
    about = machine.describe()
    names, missing = chosen_peers(given.peers, given.no_peers)
    module: ModuleType | None = None
    if given.what != "install":
        module = importlib.import_module(f"bench.{benchmarks()[given.what]}")
        used = getattr(module, "PEERS", None)
        if used is not None:
            names = [name for name in names if name in used]
            missing = {name: why for name, why in missing.items() if name in used}
    peers = []
    for name in names:
        try:
            peers.append(install.installed(catalog.PEERS[name]))
        except install.InstallError as error:
            missing[name] = str(error)
            say(f"bench: {name} is left out: {error}")
    if module is None:
        say(f"bench: installed {', '.join(peer.name for peer in peers)}")
        raise SystemExit(1 if missing.keys() & set(names) else 0)
    options = dict(option.partition("=")[::2] for option in given.option)
    with BenchServer(given.server) as server:
        rig = Rig(
            server, ours_subject(), peers, missing, max(1, given.rounds), about, given.jobs, options, given.no_peers
        )
        result = module.run(rig)
    data, _ = result.write(given.output)
    print(markdown(result))
    print(f"Written to {os.path.relpath(data)}")


if __name__ == "__main__":
    main()
