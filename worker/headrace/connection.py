"""Where the store is: settings that the worker and every command share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from headrace.errors import InvalidInput
from headrace.rotation import follow
from headrace.setting_errors import SECRET, InvalidSettings, problem_text, setting_of
from headrace.stores import Store, open_store
from headrace.stores.prefix import MAX_PREFIX, PREFIX_PATTERN


def unless_overruled(found: dict[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a source of settings has found without a ``redis_url_file`` that a stronger source's URL overrules.

    Within one source the file wins over the URL.
    """
    if "redis_url" in stronger and "redis_url_file" not in stronger:
        return {name: value for name, value in found.items() if name != "redis_url_file"}
    return found


class EnvironmentSource(EnvSettingsSource):
    """Settings from ``HEADRACE_*``."""

    def __call__(self) -> dict[str, Any]:
        """Return what the environment sets."""
        return unless_overruled(super().__call__(), self.current_state)


class ConnectionSettings(BaseSettings):
    """The connection, from the environment (``HEADRACE_REDIS_URL`` ...) unless given in code or on the command line.

    A URL with a password belongs into a file, not into the environment: Kubernetes mounts a Secret as one, and can
    change it while the process runs.
    """

    model_config = SettingsConfigDict(
        env_prefix="HEADRACE_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        # Values may hold a password.
        hide_input_in_errors=True,
    )

    redis_url: SecretStr = Field(SecretStr("redis://127.0.0.1:6379/0"), description="URL of the store.")
    redis_url_file: Path | None = Field(None, description="File that holds the URL; wins over redis_url.")
    prefix: str = Field("headrace", max_length=MAX_PREFIX, pattern=f"^{PREFIX_PATTERN}$", description="Of every key.")

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise InvalidSettings(type(self), error) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the strongest first."""
        return init_settings, EnvironmentSource(settings_cls)

    def store_url(self) -> str:
        """Return the URL, read now if it lies in a file. It may hold a password: do not log it.

        Raises InvalidInput if the file cannot be read or is empty.
        """
        if self.redis_url_file is None:
            return self.redis_url.get_secret_value()
        return read_url("redis_url_file", self.redis_url_file)

    def open_store(self) -> Store:
        """Return the store; no connection is made yet. If its URL lies in a file it follows changes of that."""

        def opened(url: str) -> Store:
            return open_store(url, self.prefix)

        return opened(self.store_url()) if self.redis_url_file is None else follow(self.store_url, opened)


def read_url(field: str, path: Path | None) -> str:
    """Return the URL in the file that the setting ``field`` names. It may hold a password: do not log it.

    Raises InvalidInput if the file cannot be read or is empty.
    """
    if path is None:
        raise InvalidInput(field, "is not set", "name a file that holds the URL")
    try:
        url = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "is not text"
        raise InvalidInput(field, f"{path} cannot be read ({problem})", "mount a file that holds the URL") from None
    if not url:
        raise InvalidInput(field, f"{path} is empty", "write the URL into it")
    return url


def variable(setting: str) -> str:
    """Return the environment variable of a setting, ``lease_ms`` or ``retry.base_ms``."""
    return f"HEADRACE_{setting.replace('.', '__').upper()}"


def explain(error: InvalidSettings, names: Mapping[str, str] | None = None) -> list[str]:
    """Return one line per problem of refused settings: what was set, and what is wrong with it.

    ``names``: how settings are called that came from the command line or a file; the others are named by their
    environment variable. The value of a URL is left out, since it may hold a password.
    """
    names = names or {}
    lines = []
    for problem in error.validation.errors(include_url=False):
        if not problem["loc"]:
            lines.append(_with_names(problem_text(problem), names))
            continue
        setting = setting_of(problem)
        if problem["type"] == "value_error" and isinstance(problem["input"], Mapping):  # its parts do not fit together
            lines.append(_with_names(problem_text(problem), names, within=setting))
            continue
        shown = names.get(setting, variable(setting))
        lines.append(f"{shown}: {problem_text(problem, secret=setting in SECRET)}")
    return lines


def _with_names(message: str, names: Mapping[str, str], within: str = "") -> str:
    """Replace names of settings by those that the user knows."""

    def shown(found: re.Match[str]) -> str:
        setting = f"{within}.{found[0]}" if within else found[0]
        return names.get(setting, variable(setting))

    return re.sub(r"\b(?:concurrency|metrics|[a-z]+(?:_[a-z]+)+)\b", shown, message)
