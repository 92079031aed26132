"""Both images build, and start as a restricted Pod would start them; an application's image runs a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from scripts import images
from tests.services.redis import RedisServer

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building and running images needs root"),
    # The first run makes the base image.
    pytest.mark.timeout(900),
]
VERSION = tomllib.loads((images.ROOT / "worker" / "pyproject.toml").read_text())["project"]["version"]
USER = 10001
COMMANDS = [
    ("worker", ("headrace", "version"), VERSION),
    ("worker", ("headrace", "--help"), "topology"),
    ("operator", ("headrace-operator", "--version"), VERSION),
    ("operator", ("headrace-operator", "--help"), "operator"),
]


def run_line(container: str, *command: str, env: dict[str, str] | None = None) -> list[str]:
    """`buildah run` as the image's own user, without capabilities."""
    variables = [part for name, value in (env or {}).items() for part in ("--env", f"{name}={value}")]
    return images.buildah_command("run", *images.ISOLATION, "--cap-drop", "ALL", *variables, container, "--", *command)


def run(container: str, *command: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        run_line(container, *command, env=env), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for(what: str, ready: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)


@pytest.mark.parametrize(("image", "command", "expected"), COMMANDS)
def test_a_command_runs_as_the_images_own_user(
    built: None, container: Callable[[str], str], image: str, command: tuple[str, ...], expected: str
) -> None:
    name = container(f"localhost/headrace-{image}")
    assert expected in run(name, *command)
    assert run(name, "id", "-u").strip() == str(USER)


@pytest.mark.parametrize(("image", "command", "expected"), COMMANDS[::2])
def test_a_command_runs_on_a_read_only_root_file_system(
    built: None, container: Callable[[str], str], image: str, command: tuple[str, ...], expected: str
) -> None:
    folder = images.buildah("mount", container(f"localhost/headrace-{image}"))
    # In a mount namespace of its own: nothing of it is left when the command ends.
    script = (
        f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && mount -t proc proc {folder}/proc"
        f" && mount --rbind /dev {folder}/dev && ! touch {folder}/tmp/x"
        f" && chroot=$(command -v chroot) && exec env -i PATH=/opt/headrace/bin:/usr/bin:/bin"
        f" $chroot --userspec={USER}:{USER} {folder} {' '.join(command)}"
    )
    environment = {**os.environ, "PATH": images.search_path()}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize(("image", "entrypoint"), [("worker", "headrace"), ("operator", "headrace-operator")])
def test_the_image_says_what_it_is_and_runs_as_a_number(built: None, image: str, entrypoint: str) -> None:
    settings = json.loads(images.buildah("inspect", "--type", "image", f"localhost/headrace-{image}"))
    config = settings["OCIv1"]["config"]
    assert config["Entrypoint"] == [entrypoint]
    # Kubernetes can check runAsNonRoot only on a number.
    assert config["User"] == f"{USER}:{USER}"
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    assert labels["title"] == f"headrace-{image}"
    assert labels["version"] == VERSION
    assert labels["licenses"] == "Apache-2.0"


@pytest.mark.parametrize("image", ["worker", "operator"])
def test_the_image_holds_the_locked_packages_and_no_other(
    built: None, container: Callable[[str], str], image: str
) -> None:
    listed = "import json, importlib.metadata as m; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    listing = json.loads(run(container(f"localhost/headrace-{image}"), "python", "-c", listed))
    found = {canonicalize_name(name): version for name, version in listing.items()}
    installers = {"pip", "setuptools"}
    assert (installers & found.keys()) == (installers if image == "worker" else set())
    requirements = (images.ROOT / "build" / "wheels" / image / "requirements.txt").read_text()
    pins = dict(line.split(" ")[0].split("==") for line in requirements.splitlines() if "==" in line)
    assert {name: version for name, version in found.items() if name not in installers} == pins


def test_workers_of_the_image_can_elect_through_a_lease_and_through_mongodb(
    built: None, container: Callable[[str], str]
) -> None:
    opened = "import headrace.election.backends.lease, headrace.election.backends.mongo; print('both')"
    assert run(container("localhost/headrace-worker"), "python", "-c", opened).strip() == "both"


def test_a_worker_in_an_application_image_runs_a_job_and_ends_cleanly(application: str, tmp_path: Path) -> None:
    with RedisServer() as redis:
        env = {"HEADRACE_REDIS_URL": redis.url}
        run(application, "headrace", "topology", "promote", "emails", "--version", "1", "--partitions", "2", env=env)
        run(application, "headrace", "job", "enqueue", "emails", "square", '{"n": 12}', env=env)
        log = tmp_path / "worker.log"
        command = run_line(
            application, "headrace", "worker", "run", "emails.handlers:app", "--queue", "emails", env=env
        )
        with log.open("w") as output:
            worker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            wait_for("the job", lambda: "result {" in log.read_text() or worker.poll() is not None)
            assert "result {" in log.read_text(), log.read_text()
            result = json.loads(log.read_text().partition("result ")[2].splitlines()[0])
            assert (result["square"], result["uid"]) == (144, USER)
            # buildah does not pass signals on, as a kubelet's runtime does; the process itself gets it.
            assert "emails.handlers:app" in Path(f"/proc/{result['pid']}/cmdline").read_text()
            os.kill(result["pid"], signal.SIGTERM)
            assert worker.wait(timeout=60) == 0, log.read_text()
        finally:
            worker.kill()
            worker.wait()
        status = json.loads(run(application, "headrace", "status", "emails", "--output", "json", env=env))
        assert [version["version"] for version in status["versions"]] == [1]
        counts = {key: status["versions"][0][key] for key in ("ready", "scheduled", "retry", "leased", "dead")}
        assert counts == {"ready": 0, "scheduled": 0, "retry": 0, "leased": 0, "dead": 0}
