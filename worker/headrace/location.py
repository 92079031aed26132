"""Where another process finds a function: by the name of its module, and its name in there."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from headrace.errors import InvalidInput

_MAIN = "__headrace_main__"
"""What a script is called where it is imported and not run."""


class Location(NamedTuple):
    """A function by module and qualified name; ``file``, unless empty, is the script that it stands in."""

    module: str
    name: str
    file: str = ""


def locate(owner: str, function: Callable[..., Any]) -> Location:
    """Return where a function is found. Raises InvalidInput, which names ``owner``, if it cannot be found by name."""
    if not inspect.isfunction(function):
        raise InvalidInput("handler", f"of {owner} is not a plain function", "decorate a def of a module")
    module, name = function.__module__, function.__qualname__
    if "<" in name:
        raise InvalidInput(
            "handler",
            f"of {owner} is {name}, which another process cannot find by its name",
            "define it at the top level of a module",
        )
    if module != "__main__":
        return Location(module, name)
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m
        return Location(spec.name, name)
    if file is None:
        raise InvalidInput(
            "handler",
            f"of {owner} is defined in a program without a file, which another process cannot import",
            "define it in a module",
        )
    return Location(_MAIN, name, os.path.abspath(file))


def resolve(location: Location) -> Any:
    """Import the module and return what stands there. Raises whatever the import raises, or AttributeError."""
    found: Any = _script(location.file) if location.file else importlib.import_module(location.module)
    for part in location.name.split("."):
        found = getattr(found, part)
    return found


def _script(file: str) -> ModuleType:
    if _MAIN in sys.modules:
        return sys.modules[_MAIN]
    spec = importlib.util.spec_from_file_location(_MAIN, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python program", path=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MAIN] = module
    spec.loader.exec_module(module)
    return module
