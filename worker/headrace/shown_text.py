"""Text that came with a job, as a terminal or a line of a log may show it."""

from __future__ import annotations


def harmless(text: str) -> str:
    """Return text with each character escaped that cannot be seen, but for line breaks.

    An error or a payload may hold what moves the cursor, colours the terminal, or turns the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)
