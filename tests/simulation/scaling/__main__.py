"""Compare the scalers, print the table, and with ``--write`` put it and the plot into docs/."""

from __future__ import annotations

import argparse

from tests.simulation.scaling.figures import all_figures
from tests.simulation.scaling.page import pages, table


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scaling", description=__doc__)
    parser.add_argument("--write", action="store_true", help="update docs/scaling.md and docs/scaling.svg")
    write = parser.parse_args().write
    figures = all_figures()
    if write:
        for path, text in pages(figures).items():
            path.write_text(text)
    else:
        print(table(figures), end="")


if __name__ == "__main__":
    main()
