"""The ACL rule is complete, because it is taken from the scripts, and names nothing that is not used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.cli.main import app
from headrace.redis.permissions import CLIENT_COMMANDS, SCRIPTS, commands, rule

ROOT = Path(__file__).resolve().parents[2]


def scripts() -> list[str]:
    return [path.read_text() for path in (ROOT / "worker" / "headrace").rglob("*.lua")]


def test_every_command_of_every_script_is_allowed() -> None:
    used = {name.lower() for text in scripts() for name in re.findall(r"\.p?call\(['\"](\w+)['\"]", text)}
    assert len(used) > 20
    assert used <= set(commands())
    assert set(commands()) - used <= CLIENT_COMMANDS


def test_every_package_with_scripts_is_looked_at() -> None:
    folders = {path.parent for path in (ROOT / "worker" / "headrace").rglob("*.lua")}
    packages = {str(each.relative_to(ROOT / "worker")).partition("/lua")[0].replace("/", ".") for each in folders}
    assert packages == set(SCRIPTS)


def test_the_commands_of_the_clients_are_those_that_they_send() -> None:
    speaking = ("redis", "stores/redis", "election")
    paths = [path for folder in speaking for path in (ROOT / "worker" / "headrace" / folder).rglob("*.py")]
    sources = [path.read_text() for path in paths if path.name != "lease.py"]  # which speaks HTTP
    sending = re.compile(r"(?:command|blocking|asking|send)\([^\"]*\"([A-Z]{2,})\"|\(\"([A-Z]{2,})\",")
    sent = {(one or other).lower() for text in sources for one, other in sending.findall(text)}
    asked_if_allowed = {"config", "scan"}  # scan names every key of the server: only for `headrace audit --scan`
    by_the_library = {"select", "info", "subscribe", "unsubscribe"}
    named = {name.partition("|")[0] for name in CLIENT_COMMANDS}
    assert named - by_the_library == sent - by_the_library - asked_if_allowed


def test_the_rule_is_printed_for_the_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str) -> str:
        with pytest.raises(SystemExit) as left:
            app(["acl", "worker", *words])
        assert left.value.code == 0
        return capsys.readouterr().out

    assert printed() == f"ACL SETUSER worker on >PASSWORD {' '.join(rule('headrace'))}\n"
    assert "~{orders}:* ~{orders:* &{orders:* " in printed("--prefix", "orders")
    assert r" ~{a\*b\[1\]:* " in printed("--prefix", "a*b[1]")
    assert json.loads(printed("-o", "json")) == {"user": "worker", "rules": rule("headrace")}


@pytest.mark.parametrize("user", ["", "two words", "line\nbreak"])
def test_a_user_that_is_not_one_word_is_refused(user: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        app(["acl", user])
    assert (left.value.code, capsys.readouterr()) == (
        1,
        ("", f"Error: USER: {user!r} is no name of a user; give one word\n"),
    )
