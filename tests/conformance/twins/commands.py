"""Commands of the machine and the arguments that are drawn for them.

Hypothesis draws one seed for each example, and everything else follows from it: left to itself it would take a few of
the commands only in each example, and repeat them, so that hardly a job came as far as a retry.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Draw = Callable[[Random], T]
Method = TypeVar("Method", bound=Callable[..., None])


class Command(NamedTuple):
    """A method of a machine, how often it is taken compared with others, and how its arguments are drawn."""

    name: str
    weight: int
    arguments: dict[str, Draw[Any]]

    def drawn(self, random: Random) -> dict[str, Any]:
        """Return arguments for one call."""
        return {name: draw(random) for name, draw in self.arguments.items()}


def command(weight: int, /, **arguments: Draw[Any]) -> Callable[[Method], Method]:
    """Make a method a command of its machine."""

    def made(method: Method) -> Method:
        method.command = Command(method.__name__, weight, arguments)  # type: ignore[attr-defined]
        return method

    return made


def commands_of(machine: type) -> list[Command]:
    """Return the commands of a machine, in a fixed order."""
    found = (getattr(getattr(machine, name), "command", None) for name in sorted(dir(machine)))
    return [each for each in found if isinstance(each, Command)]


def one_of(*choices: T) -> Draw[T]:
    """One of these; a choice that is named twice comes twice as often."""
    return lambda random: random.choice(choices)


def integers(least: int, most: int) -> Draw[int]:
    """A whole number between these, both included."""
    return lambda random: random.randint(least, most)


def several(draw: Draw[T], most: int, least: int = 0) -> Draw[list[T]]:
    """Some of them."""
    return lambda random: [draw(random) for _ in range(random.randint(least, most))]


def tuples(*draws: Draw[Any]) -> Draw[tuple[Any, ...]]:
    """One of each."""
    return lambda random: tuple(draw(random) for draw in draws)
