"""Where programs are looked for, and that a build is whole or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import binaries, gobuild


def program(folder: Path, name: str, version: str) -> Path:
    """A script that answers the question for its version, which is all that is asked here."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


def test_assets_come_before_path_and_path_before_cache(tmp_path: Path) -> None:
    assets = program(tmp_path / "assets", "kube-apiserver", "Kubernetes v1.34.0")
    on_path = program(tmp_path / "bin", "kube-apiserver", "Kubernetes v1.34.9")
    cached = program(tmp_path / "cache" / f"k8s-{binaries.KUBERNETES}", "kube-apiserver", "Kubernetes v1.34.4")
    places = {"KUBEBUILDER_ASSETS": str(assets.parent), "PATH": str(on_path.parent)}

    def found(*names: str) -> Path | None:
        environ = {name: places[name] for name in names}
        return binaries.locate("kube-apiserver", environ=environ, cache=tmp_path / "cache")

    assert found("KUBEBUILDER_ASSETS", "PATH") == assets
    assert found("PATH") == on_path
    assert found() == cached
    cached.unlink()
    assert found() is None


def test_program_on_path_is_taken_only_if_its_version_fits(tmp_path: Path) -> None:
    for version in ("Kubernetes v1.33.9", "Kubernetes v1.35.0", "nonsense"):
        program(tmp_path / "bin", "kube-apiserver", version)
        environ = {"PATH": str(tmp_path / "bin")}
        assert binaries.locate("kube-apiserver", environ=environ, cache=tmp_path / "none") is None
    # kubectl may be one minor version away, as Kubernetes allows.
    for version, fits in (("v1.33.1", True), ("v1.35.1", True), ("v1.32.4-dispatcher", False)):
        program(tmp_path / "bin", "kubectl", f"Client Version: {version}")
        path = binaries.locate("kubectl", environ={"PATH": str(tmp_path / "bin")}, cache=tmp_path / "none")
        assert (path is not None) is fits


def test_assets_of_another_version_are_an_error_and_not_skipped(tmp_path: Path) -> None:
    program(tmp_path, "kube-apiserver", "Kubernetes v1.31.0")
    with pytest.raises(binaries.BinaryError, match=r"KUBEBUILDER_ASSETS .*1\.31.*1\.34 to 1\.34"):
        binaries.locate("kube-apiserver", environ={"KUBEBUILDER_ASSETS": str(tmp_path)}, cache=tmp_path / "none")


def test_a_program_that_tells_no_version_is_known_by_what_go_wrote_into_it(tmp_path: Path) -> None:
    def keda(folder: Path, version: str, *, crds: bool) -> Path:
        folder.mkdir(parents=True)
        path = folder / "keda"
        path.write_bytes(b"\x7fELF\0dep\tgithub.com/kedacore/keda/v2\tv%s\th1:sum=\n\0" % version.encode())
        path.chmod(0o755)
        if crds:
            (folder / binaries.KEDA_CRDS).mkdir()
        return path

    def found(path: Path) -> Path | None:
        return binaries.locate("keda", environ={"PATH": str(path.parent)}, cache=tmp_path / "none")

    fitting = keda(tmp_path / "a", "2.20.1", crds=True)
    assert found(fitting) == fitting
    assert found(keda(tmp_path / "b", "2.19.0", crds=True)) is None
    # Its definitions belong to it.
    alone = keda(tmp_path / "c", "2.20.2", crds=False)
    assert found(alone) is None
    with pytest.raises(binaries.BinaryError, match=r"config/crd/bases of github\.com/kedacore/keda/v2 as crds"):
        binaries.locate("keda", environ={"KUBEBUILDER_ASSETS": str(alone.parent)}, cache=tmp_path / "none")


def test_program_is_built_from_a_module_and_appears_whole(tmp_path: Path) -> None:
    said: list[str] = []
    go = gobuild.find_go(tmp_path, said.append)
    main = 'package main\n\nimport "golang.org/x/mod/semver"\n\nfunc main() { println(semver.Major("v7.1.0")) }\n'
    module = gobuild.Module(path="golang.org/x/mod", version="v0.30.0", main=main, kept=(("semver", "sources"),))
    target = tmp_path / "out" / "seven"
    gobuild.build(go, "seven", module, target, scratch=tmp_path / "scratch", say=said.append)
    assert subprocess.run([target], capture_output=True, text=True, check=True).stderr == "v7\n"
    assert (tmp_path / "out" / "sources" / "semver.go").read_text().startswith("// Copyright")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert any("ready after" in line for line in said)

    broken = gobuild.Module(
        path="golang.org/x/mod", version="v0.30.0", main="package main\n\nfunc main() { nothing }\n"
    )
    with pytest.raises(gobuild.BuildError, match="undefined: nothing"):
        gobuild.build(go, "broken", broken, tmp_path / "out" / "broken", scratch=tmp_path / "scratch", say=said.append)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"seven", "sources"}


def test_what_is_built_later_is_only_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.cluster.binaries", "--later", "keda"]
    environ = dict(os.environ) | {"HEADRACE_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": "", "PATH": ""}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert (told.stdout, list(tmp_path.iterdir())) == ("", [])
    assert "make setup-keda" in told.stderr


def test_command_prints_every_path() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.cluster.binaries", *binaries.CLUSTER], capture_output=True, text=True, check=True
    )
    paths = dict(line.split(" ", 1) for line in result.stdout.splitlines())
    assert set(paths) == set(binaries.CLUSTER)
    assert all(os.access(path, os.X_OK) for path in paths.values())
