"""Code blocks of a Markdown page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """The README, the pages of docs/, and the other pages that a reader of the repository meets."""
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    return [path for path in found if path.exists()]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks, in order."""
    text = page.read_text()
    return [
        Block(str(page.relative_to(ROOT)), text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for match in _FENCE.finditer(text)
    ]
