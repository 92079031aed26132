"""Commands that look again until they are interrupted, and output as YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from headrace.cli.output import Format, show
from headrace.cli.watching import EVERY_SECONDS, watched


def test_what_differs_is_printed_once_until_somebody_interrupts(capsys: pytest.CaptureFixture[str]) -> None:
    seen, slept = iter(["a", "a", "b", "a"]), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt

    watched(lambda: print(next(seen)), True, sleep)
    assert capsys.readouterr().out == "a\nb\na\n"
    assert slept == [EVERY_SECONDS] * 4


def test_without_it_a_command_looks_once(capsys: pytest.CaptureFixture[str]) -> None:
    looks: Iterator[int] = iter(range(9))
    watched(lambda: print(next(looks)), False)
    assert capsys.readouterr().out == "0\n"
    assert next(looks) == 1


def test_an_error_ends_it() -> None:
    def fails() -> None:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        watched(fails, True)


@pytest.mark.parametrize("data", [{"b": [1, {"c": None}], "a": "ü: x"}, [{"name": "x", "at": 1.5}, {"name": "y"}], []])
def test_yaml_holds_what_json_does(data: object, capsys: pytest.CaptureFixture[str]) -> None:
    show(Format.YAML, data, ("NAME",), [])
    shown = capsys.readouterr().out
    show(Format.JSON, data, ("NAME",), [])
    assert yaml.safe_load(shown) == json.loads(capsys.readouterr().out) == data
