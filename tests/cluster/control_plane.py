"""Level 1: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, in one temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import kubernetes.client
import kubernetes.config
import urllib3

from tests.cluster import binaries, kubeconfig
from tests.cluster.certificates import Authority, Credential, signing_pair, tls_context, write_private
from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.cluster.processes import Component
from tests.cluster.rest import ApiError, Rest

T = TypeVar("T")

ETCD, API_SERVER, CONTROLLERS, SCHEDULER = binaries.CONTROL_PLANE
PROXY = "aggregator"
SERVICE_NETWORK = "10.0.0.0/24"

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
"""


class ControlPlaneError(RuntimeError):
    """A component did not come up; the message names it, its last log lines and the folder with all logs."""


class ControlPlane:
    """A Kubernetes control plane without nodes; a context manager.

    >>> with ControlPlane() as plane:
    ...     version = kubernetes.client.VersionApi(plane.client()).get_code()

    ``folder`` (default: a new temporary folder) holds certificates, etcd's data and the logs. It is removed at the
    end, unless the start failed, the body raised, or ``keep_logs`` was set: then ``folder/logs`` stays and its path is
    in the error or on ``logs``. Nothing keeps running when the process that started it is killed.
    """

    def __init__(self, *, folder: Path | None = None, keep_logs: bool = False) -> None:
        self.keep_logs = keep_logs
        self._chosen_folder = folder
        self._components: dict[str, Component] = {}
        self._guard: Guard | None = None
        self._folder: Path | None = None
        self._rest: Rest | None = None

    # --- what it offers -------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The data folder. Raises RuntimeError before the start."""
        return _started(self._folder)

    @property
    def logs(self) -> Path:
        """The folder with one log file per component."""
        return self.folder / "logs"

    @property
    def audit_log(self) -> Path:
        """What service accounts outside of kube-system have asked the API server for, one JSON object per line."""
        return self.folder / "audit.log"

    @property
    def guard(self) -> Guard:
        """Where further processes of this cluster register, to end with it."""
        return _started(self._guard)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._api_port}"

    @property
    def rest(self) -> Rest:
        """A client for plain dicts with the administrator's rights."""
        return _started(self._rest)

    @property
    def authority(self) -> Authority:
        """The authority that signs every certificate of this cluster."""
        return self._authority

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig (group ``system:masters``)."""
        return self.folder / "admin.kubeconfig"

    def client(self, path: Path | None = None) -> kubernetes.client.ApiClient:
        """A new API client for the administrator, or for another kubeconfig. The caller closes it."""
        chosen = str(path or self.kubeconfig)
        client: kubernetes.client.ApiClient = kubernetes.config.new_client_from_config(chosen)  # type: ignore[no-untyped-call]
        return client

    def user_kubeconfig(self, user: str, *groups: str, namespace: str = "default") -> Path:
        """Write a kubeconfig for a new client certificate; returns its path."""
        path = self.folder / f"{user.replace(':', '-').replace('/', '-')}.kubeconfig"
        self._write_kubeconfig(path, self._authority.client(user, *groups), namespace)
        return path

    def pids(self) -> dict[str, int]:
        """Process id of each component that runs."""
        return {name: part.pid for name, part in self._components.items() if part.pid is not None}

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring everything up; about 10 s when the programs are cached. Raises :class:`ControlPlaneError`."""
        programs = binaries.ensure(binaries.CONTROL_PLANE)
        self._folder = self._chosen_folder or Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
        self._guard = Guard()
        self._guard.remove(self._folder)
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            self._prepare(programs)
            self._components[ETCD].start()
            self._components[API_SERVER].start()
            self._wait_for(API_SERVER, self._api_ready, 90)
            # They would fail and retry with back-off if they started before the API server.
            self._components[CONTROLLERS].start()
            self._components[SCHEDULER].start()
            self._wait_for(CONTROLLERS, self._default_account_exists, 60)
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Kill every component and remove the folder; with ``keep_logs`` its ``logs`` stay. May be called twice."""
        for name in (SCHEDULER, CONTROLLERS, API_SERVER, ETCD):
            if name in self._components:
                # Their data is thrown away, so there is nothing to finish.
                self._components[name].stop(grace=0)
        if self._rest is not None:
            self._rest.close()
            self._rest = None
        if self._folder is not None and self._guard is not None:
            if keep_logs or self.keep_logs:
                self._guard.keep(self._folder)
                for entry in self._folder.iterdir():
                    if entry != self.logs:
                        _remove(entry)
            else:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._guard.close()
            self._guard = None
        self._components = {}

    def stop_component(self, name: str, *, grace: float = 5.0) -> None:
        """Stop one component (``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ``kube-scheduler``).

        SIGTERM, then SIGKILL after ``grace`` seconds; 0 is SIGKILL at once, as in a crash.
        """
        self._component(name).stop(grace=grace)

    def start_component(self, name: str) -> None:
        """Start a stopped component again, with its old data and port; returns when it serves."""
        self._component(name).start()
        if name == API_SERVER:
            self._wait_for(name, self._api_ready, 60)

    def signal_component(self, name: str, number: int) -> None:
        """Send a signal, e.g. SIGSTOP and SIGCONT, to a running component."""
        self._component(name).signal(number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = kind is not None and not issubclass(kind, KeyboardInterrupt | SystemExit)
        if failed and error is not None:
            error.add_note(f"logs of the control plane: {self.logs}")
        self.stop(keep_logs=failed)

    # --- how it comes up ------------------------------------------------------------------------------------------

    def _prepare(self, programs: Mapping[str, Path]) -> None:
        folder = self.folder
        self._authority = Authority()
        ca = folder / "ca.crt"
        ca.write_bytes(self._authority.certificate)
        hosts = ["localhost", "127.0.0.1", "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        serving, serving_key = self._authority.server("kube-apiserver", hosts).write(folder, "apiserver")
        kubelet, kubelet_key = self._authority.client("kube-apiserver-kubelet-client", "system:masters").write(
            folder, "kubelet-client"
        )
        # By it the API server shows servers of further APIs on whose behalf it asks.
        proxy_authority = Authority("headrace-proxy")
        (folder / "proxy-ca.crt").write_bytes(proxy_authority.certificate)
        proxy, proxy_key = proxy_authority.client(PROXY).write(folder, "proxy")
        private, public = signing_pair()
        write_private(folder / "service-account.key", private)
        (folder / "service-account.pub").write_bytes(public)

        policy = folder / "audit-policy.yaml"
        policy.write_text(AUDIT_POLICY)

        etcd_port, peer_port, self._api_port = free_ports(3)
        admin = self._authority.client("admin", "system:masters")
        self._rest = Rest(self.server, tls_context(self._authority, admin, server=False))
        users: dict[str, tuple[str, ...]] = {"admin": ("admin", "system:masters")}
        users |= {name: (f"system:{name}",) for name in (CONTROLLERS, SCHEDULER)}
        for name, (user, *groups) in users.items():
            self._write_kubeconfig(folder / f"{name}.kubeconfig", self._authority.client(user, *groups), "default")
        etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"

        self._add(
            programs[ETCD],
            f"--data-dir={folder / 'etcd'}",
            "--name=local",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=local={peer_url}",
            "--unsafe-no-fsync",  # the data does not outlive the machine
            "--log-level=warn",
        )
        self._add(
            programs[API_SERVER],
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._api_port}",
            f"--etcd-servers={etcd_url}",
            f"--tls-cert-file={serving}",
            f"--tls-private-key-file={serving_key}",
            f"--client-ca-file={ca}",
            f"--kubelet-client-certificate={kubelet}",
            f"--kubelet-client-key={kubelet_key}",
            f"--kubelet-certificate-authority={ca}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={folder / 'service-account.pub'}",
            f"--service-account-signing-key-file={folder / 'service-account.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--proxy-client-cert-file={proxy}",
            f"--proxy-client-key-file={proxy_key}",
            f"--requestheader-client-ca-file={folder / 'proxy-ca.crt'}",
            f"--requestheader-allowed-names={PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",  # it would refuse a loopback address
            "--allow-privileged=true",
            f"--cert-dir={folder}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
        )
        self._add(
            programs[CONTROLLERS],
            f"--kubeconfig={folder / f'{CONTROLLERS}.kubeconfig'}",
            f"--root-ca-file={ca}",
            f"--service-account-private-key-file={folder / 'service-account.key'}",
            "--use-service-account-credentials=true",
            # Pods of a silent node stay where they are: a test decides what happens to them.
            "--controllers=*,-node-lifecycle-controller",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._add(
            programs[SCHEDULER],
            f"--kubeconfig={folder / f'{SCHEDULER}.kubeconfig'}",
            "--leader-elect=false",
            "--secure-port=0",
        )

    def _add(self, program: Path, *flags: str) -> None:
        name = program.name
        # Proxy settings and kubeconfigs of the user's environment must not reach them.
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        log = self.logs / f"{name}.log"
        self._components[name] = Component(name, [str(program), *flags], log=log, guard=self.guard, env=env)

    def _write_kubeconfig(self, path: Path, credential: Credential, namespace: str) -> None:
        text = kubeconfig.with_certificate(self.server, self._authority.certificate, credential, namespace=namespace)
        write_private(path, text.encode())

    def _wait_for(self, name: str, ready: Callable[[], bool], deadline: float) -> None:
        end = time.monotonic() + deadline
        while True:
            for part in self._components.values():
                if part.exit_code is not None and part.name in (name, ETCD):
                    raise self._failure(part, f"ended with exit code {part.exit_code} while starting")
            with contextlib.suppress(urllib3.exceptions.HTTPError, ApiError):
                if ready():
                    return
            if time.monotonic() > end:
                raise self._failure(self._components[name], f"was not ready after {deadline:.0f} s")
            time.sleep(0.05)

    def _failure(self, part: Component, what: str) -> ControlPlaneError:
        return ControlPlaneError(f"{part.name} {what}; logs are in {self.logs}; it said last:\n{part.tail()}")

    def _api_ready(self) -> bool:
        return self.rest.request("GET", "/readyz") == {"text": "ok"}

    def _default_account_exists(self) -> bool:
        return self.rest.find("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _component(self, name: str) -> Component:
        if name not in self._components:
            raise KeyError(f"no running component {name!r}; there are {', '.join(self._components) or 'none'}")
        return self._components[name]


def _started(value: T | None) -> T:
    if value is None:
        raise RuntimeError("the control plane is not running: use it as a context manager or call start()")
    return value


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
