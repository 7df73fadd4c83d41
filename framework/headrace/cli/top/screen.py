"""
The terminal of `headrace top`: a page that is drawn over the last one, and keys that are read without Enter.

The page is written past the guard of the standard streams, which would show the control sequences of drawing; so its
text is made harmless here. Used by the command; uses the terminal.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from headrace.cli.streams import visible
from headrace.cli.tables import table_lines
from headrace.cli.top.page import KEYS, TopPage

__all__ = ["Screen", "lines_of"]

_HELP: Final = ", ".join(f"{key}: by {name}" for key, name in KEYS.items()) + ", q: end"
# Blank line and heading of each table, and the line with the keys.
_TABLE_LINES: Final = 3
_ROWS_MIN: Final = 3
_TABLES: Final = 3
_HEAD_LINES: Final = 6
_KEY_BYTES_MAX: Final = 32


def lines_of(page: TopPage, width: int) -> list[str]:
    """Returns a page as lines of text, each harmless for a terminal.

    Args:
        page: what to show.
        width: of a line, in characters; longer ones are folded in tables.
    """
    lines = list(page.head)
    for each in page.sections:
        lines += ["", *table_lines(each.columns, each.rows, width)]
        if each.more:
            lines.append(f" and {each.more:,} more")
    return [visible(line.replace("\r", "\\r")) for line in lines]


class Screen:
    """A terminal in which pages are drawn; use it in a `with` block.

    Attributes:
        pressed: set when a key was pressed.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=sys.__stdout__, highlight=False, markup=False)
        self._live: Live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._keys: list[str] = []
        self.pressed = asyncio.Event()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    @property
    def rows_max(self) -> int:
        """How many rows of each table fit."""
        room = self._console.height - _HEAD_LINES - _TABLE_LINES * _TABLES
        return max(_ROWS_MIN, room // _TABLES)

    def draw(self, page: TopPage, trouble: str = "") -> None:
        """Draws a page over the last one.

        Args:
            page: what to show.
            trouble: why it is not of now; empty: it is.
        """
        from rich.text import Text

        lines = lines_of(page, self._console.width)[: max(1, self._console.height - 2)]
        text = "\n".join([*lines, "", visible(trouble) or _HELP])
        self._live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

    def taken(self) -> list[str]:
        """Returns the keys that were pressed since the last call."""
        found, self._keys = self._keys, []
        self.pressed.clear()
        return found

    def press(self, text: str) -> None:
        """Takes keys as they come from the terminal."""
        self._keys += text
        self.pressed.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Reads keys for a block, where standard input is a terminal."""
        if not sys.stdin.isatty():
            yield
            return
        try:
            import termios
            import tty
        except ImportError:  # Windows
            yield
            return
        file, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        before = termios.tcgetattr(file)
        tty.setcbreak(file)
        loop.add_reader(file, self._read, file)
        try:
            yield
        finally:
            loop.remove_reader(file)
            termios.tcsetattr(file, termios.TCSADRAIN, before)

    def _read(self, file: int) -> None:
        self.press(os.read(file, _KEY_BYTES_MAX).decode("ascii", "ignore"))
