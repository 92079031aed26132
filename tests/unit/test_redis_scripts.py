"""The loader of Lua scripts: fragments of the own package and shared ones, put in place of what includes them."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from headrace.redis.scripts import fragment, load

PACKAGES = ("headrace.election", "headrace.stores.redis")


def names(package: str, *folder: str) -> set[str]:
    """Names of the Lua files in a folder of a package."""
    found = files(package).joinpath("lua", *folder)
    if not found.is_dir():
        return set()
    return {path.name.removesuffix(".lua") for path in found.iterdir() if path.name.endswith(".lua")}


def test_a_script_holds_the_fragments_of_its_own_package() -> None:
    loaded = load("headrace.stores.redis", "ack")
    assert fragment("headrace.stores.redis", "clock") in loaded.source
    assert loaded.sha == hashlib.sha1(loaded.source.encode()).hexdigest()
    assert loaded.name == "ack"


def test_a_script_of_any_package_may_hold_a_shared_fragment() -> None:
    shared = fragment("headrace.redis", "fenced")
    assert shared in load("headrace.election", "beat").source
    assert {fragment(package, "fenced") for package in PACKAGES} == {shared}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_include_is_replaced(package: str) -> None:
    scripts = names(package)
    assert scripts
    assert [name for name in scripts if "@include" in load(package, name).source] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_fragment_hides_a_shared_one(package: str) -> None:
    assert names("headrace.redis", "lib")
    assert names(package, "lib") & names("headrace.redis", "lib") == set()
