"""
Prints tables: the only place that does, so that all commands print them in one way.

Headings are in small letters. Numbers are grouped by thousands and stand to the right, and what has no value
is `-`. Each row is one line for a program that reads the output; a terminal folds cells that are too wide.
"""

import sys
from collections.abc import Iterable, Sequence

__all__ = ["NOTHING", "print_table"]

NOTHING = "-"
# Characters of a line that is not for a terminal; longer than any row.
_PIPE_WIDTH = 10_000


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table.

    Args:
        columns: the headings.
        rows: with a cell for each column. An int is a number; None and empty text are nothing.
    """
    from rich.console import Console
    from rich.table import Table

    held = list(rows)
    table = Table(box=None)
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], int) for row in held)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in held:
        table.add_row(*map(_text, row))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)


def _text(cell: object) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    # In one line: a name with a line feed in it must not look like another row.
    text = "" if cell is None else str(cell).replace("\r", "\\r").replace("\n", "\\n")
    return text or NOTHING
