"""
Prints tables: the only place that does, so that all commands print them in one way.

Headings are in small letters. Numbers are grouped by thousands and stand to the right, and what has no value
is `-`. Each row is one line for a program that reads the output; a terminal folds cells that are too wide.
"""

import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded by the functions that print
    from rich.table import Table

__all__ = ["NOTHING", "one_line", "print_table", "table_lines"]

NOTHING = "-"
# Characters of a line that is not for a terminal; longer than any row.
_PIPE_WIDTH = 10_000


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table.

    Args:
        columns: the headings.
        rows: with a cell for each column. An int is a number, and so is a float, with one decimal; None and empty text
            are nothing.
    """
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(highlight=False, markup=False, width=width).print(_table(columns, rows))


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[object]], width: int) -> list[str]:
    """Returns a table as lines of plain text, one for each row, for what draws them itself.

    Args:
        columns: the headings.
        rows: as for `print_table`.
        width: of a line, in characters; cells that are too wide end with an ellipsis.
    """
    from rich.console import Console

    text = StringIO()
    console = Console(file=text, highlight=False, markup=False, width=width, color_system=None)
    console.print(_table(columns, rows, fold=False))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def one_line(text: str) -> str:
    """Returns a text without line feeds: a name with one in it must not look like another row."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, fold: bool = True
) -> "Table":
    from rich.table import Table

    held = list(rows)
    table = Table(box=None)
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], int | float) for row in held)
        table.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="fold" if fold else "ellipsis",
            no_wrap=not fold,
        )
    for row in held:
        table.add_row(*map(_text, row))
    return table


def _text(cell: object) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return NOTHING if cell is None else one_line(str(cell)) or NOTHING
