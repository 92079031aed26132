"""The settings file: the table ``[worker]`` of a TOML file, for those who start workers without an operator."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from headrace.connection import unless_overruled
from headrace.errors import InvalidInput

TABLE = "worker"


class FileSource(PydanticBaseSettingsSource):
    """Settings from the file that ``config`` names, which code, command line or environment have given."""

    def __call__(self) -> dict[str, Any]:
        """Return what the file sets."""
        return file_values(self.settings_cls, self.current_state)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not asked for: the file is read as a whole."""
        raise NotImplementedError


def file_values(settings: type[BaseSettings], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file sets that ``stronger`` sources name as ``config``, less what they overrule of it."""
    path = stronger.get("config")
    if not path:
        return {}
    known = [name for name in settings.model_fields if name != "config"]
    return unless_overruled(read_settings(Path(path), known), stronger)


def read_settings(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """Return the table ``[worker]`` of the file; ``known``: the keys that it may have.

    Raises InvalidInput: the file cannot be read, is no TOML, or has a table or key that no setting is read from. Values
    are not looked at, and never shown.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "is not text"
        raise InvalidInput("config", f"{path} cannot be read ({problem})", "give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("config", f"{path} is not TOML ({error})", "correct the file") from None
    for name, value in found.items():
        if not isinstance(value, dict):
            raise InvalidInput("config", f"{path}: {name} stands in no table", f"put it below [{TABLE}]")
        if name != TABLE:
            raise InvalidInput("config", f"{path}: table [{name}] is unknown", f"use [{TABLE}]")
    table: dict[str, Any] = found.get(TABLE, {})
    known = list(known)
    for key in table:
        if key not in known:
            raise InvalidInput("config", f"{path}: [{TABLE}] has no setting {key!r}", _remedy(key, known))
    return table


def close_to(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant."""
    return next(iter(get_close_matches(name, list(known), 1, 0.8)), None)


def misspelled(environment: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return variables of the environment that look like a setting but are none, with the setting that looks so.

    ``known``: names of variables. Other names may belong to other programs.
    """
    known = list(known)
    strange = [name for name in environment if name.startswith("HEADRACE_") and name not in known]
    return {name: meant for name in strange if (meant := close_to(name, known)) is not None}


def _remedy(key: str, known: list[str]) -> str:
    meant = close_to(key, known)
    return f"did you mean {meant}?" if meant else "see `headrace worker run --show-settings` for all of them"
