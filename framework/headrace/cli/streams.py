"""
The standard streams of a command: opened if they were closed, and made safe for a terminal.

Clients choose names (of clients, groups, aggregates) that may hold any character. If a command printed
them as they are, an escape sequence could move the cursor, change the window or hide a line from you.

Used by `headrace.cli.main` for everything that a command prints.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any, Final, TextIO

__all__ = ["GuardedStream", "prepare_streams", "visible"]

# Characters that must not reach a terminal: C0 except tab and line feed, DEL, C1, and those that change the
# direction of text.
# Colours and weights (`ESC [ … m`) stay: tables are made of them, and they change nothing but looks.
_HARMFUL: Final = re.compile(
    "(\x1b\\[[0-9;]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def _shown(found: re.Match[str]) -> str:
    return found.group(1) or found.group().encode("unicode_escape").decode("ascii")


def visible(text: str) -> str:
    r"""Returns a text with its harmful characters written out: ESC becomes `\x1b`.

    A carriage return before a line feed stays: it is how some write the end of a line.
    """
    parts = text.split("\r\n")
    return "\r\n".join(_HARMFUL.sub(_shown, part) for part in parts)


class GuardedStream:
    """A text stream that writes out what would control a terminal; all else is the stream's own.

    Args:
        stream: what is written to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes a text; returns the number of its characters."""
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare_streams() -> None:
    """Opens the null device for closed streams, and guards what goes to standard output and error.

    Closed ones in the order of their numbers: else a log or a socket would get the number of a stream,
    and with it what the program prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stand_in = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - until the end
            setattr(sys, name, stand_in)
    sys.stdout = GuardedStream(sys.stdout)
    sys.stderr = GuardedStream(sys.stderr)
