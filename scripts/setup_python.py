"""Make `.venv` hold exactly the locked packages and the two packages of this repository, in editable form.

Runs before anything is installed, hence on the standard library alone. A stamp inside `.venv` remembers what was
installed; when lock and package metadata have not changed, nothing happens.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / ".setup-stamp"
INPUTS = (LOCK, ROOT / "worker" / "pyproject.toml", ROOT / "operator" / "pyproject.toml", Path(__file__))


def fingerprint() -> str:
    """Place of `.venv` and a hash of everything that decides what it holds."""
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.read_bytes())
    return f"{VENV}\n{digest.hexdigest()}\n"


def up_to_date() -> bool:
    """True if the last complete run installed what the inputs say today."""
    return STAMP.is_file() and PYTHON.exists() and STAMP.read_text() == fingerprint()


def locked_block(name: str) -> str:
    """Lines of one package in the lock: its pin and its hashes."""
    found = re.search(rf"^{re.escape(name)}==.*?(?=^\S|\Z)", LOCK.read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"setup: requirements.lock does not hold {name}; add it to requirements.in and run make lock")
    return found.group()


def run(*command: str | Path) -> None:
    """Run a command, or end with its name and exit code."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=False)  # noqa: S603
    if done.returncode != 0:
        raise SystemExit(f"setup: '{' '.join(str(part) for part in command[:6])} ...' failed with {done.returncode}")


def usable() -> bool:
    """True if `.venv` was made here and its interpreter starts and is new enough."""
    if not PYTHON.exists():
        return False
    # Its commands name their interpreter by an absolute path: a copied `.venv` would run the original's.
    if STAMP.is_file() and (made_for := STAMP.read_text().partition("\n")[0]).startswith("/") and made_for != str(VENV):
        return False
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([str(PYTHON), "-c", check], check=False, capture_output=True).returncode == 0  # noqa: S603


def create_venv() -> list[str | Path]:
    """Make `.venv` if it is missing or broken; return the pip command that installs into it."""
    # Debian's python3 comes without ensurepip; pip then installs from outside.
    bundled_pip = importlib.util.find_spec("ensurepip") is not None
    if not usable():
        print(f"setup: creating .venv with Python {sys.version.split()[0]}", flush=True)
        venv.EnvBuilder(clear=True, with_pip=bundled_pip, symlinks=True).create(VENV)
    has_pip = subprocess.run([PYTHON, "-c", "import pip"], check=False, capture_output=True).returncode == 0  # noqa: S603
    return [PYTHON, "-m", "pip"] if has_pip else [sys.executable, "-m", "pip", "--python", PYTHON]


def install() -> None:
    """Install uv by its locked hash, then the lock, then this repository's packages."""
    pip = create_venv()
    STAMP.write_text(f"{VENV}\nincomplete\n")
    uv_pin = locked_block("uv")
    version = uv_pin.split("==", 1)[1].split(maxsplit=1)[0]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pin:
        pin.write(uv_pin)
        pin.flush()
        print(f"setup: installing uv {version}", flush=True)
        run(*pip, "install", "--quiet", "--no-deps", "--require-hashes", "-r", pin.name)
    uv: list[str | Path] = [PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON]
    print("setup: installing requirements.lock", flush=True)
    run(*uv, "--require-hashes", "-r", LOCK)
    print("setup: installing headrace and headrace-operator in editable form", flush=True)
    run(*uv, "--no-deps", "--no-build-isolation", "-e", ROOT / "worker", "-e", ROOT / "operator")


def main() -> None:
    """Bring `.venv` up to date; two runs at once wait for each other."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the interpreter may be any
        raise SystemExit(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if up_to_date():
        print("setup: .venv is up to date")
        return
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if up_to_date():
            return
        started = time.monotonic()
        wanted = fingerprint()
        install()
        STAMP.write_text(wanted)
        print(f"setup: .venv is ready ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
