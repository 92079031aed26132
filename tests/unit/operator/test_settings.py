"""Settings of the operator, and its runbooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from headrace_operator.reasons import ACTIONABLE
from headrace_operator.settings import OperatorSettings

ROOT = Path(__file__).resolve().parents[3]


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_WATCH_NAMESPACES", "a, b,")
    for url in ("redis://redis:6379/1", "rediss+cluster://a:6379,b:6379", "redis+sentinel://a,b/mymaster/0"):
        monkeypatch.setenv("HEADRACE_DEFAULT_REDIS_URL", url)
        settings = OperatorSettings()
        assert settings.watch_namespaces == ("a", "b")
        assert settings.default_redis_url == url


@pytest.mark.parametrize(
    "url", ["redis://:secret-password@redis", "redis+cluster://:secret-password@a,b", "http://redis", "memory://"]
)
def test_a_default_url_with_credentials_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HEADRACE_DEFAULT_REDIS_URL", url)
    with pytest.raises(ValidationError) as refused:
        OperatorSettings()
    said = refused.value.errors(include_input=False, include_url=False)[0]["msg"]
    assert "without credentials" in said
    assert "secret-password" not in said


def test_every_reason_that_needs_somebody_has_a_runbook_and_no_other_has() -> None:
    pages = {page.stem for page in (ROOT / "docs/runbooks").glob("*.md")} - {"README"}
    assert pages == set(ACTIONABLE)


@pytest.mark.parametrize("reason", ACTIONABLE)
def test_a_runbook_says_what_it_means_and_what_to_do(reason: str) -> None:
    text = (ROOT / "docs/runbooks" / f"{reason}.md").read_text()
    assert text.startswith(f"# {reason}\n")
    for heading in ("## Meaning", "## Impact", "## Look", "## Do"):
        assert heading in text
