"""
Where an error was raised, as a text to keep: files, lines and calls, and no values of variables.

Sits between: whoever logs or parks what user code raised, and the interpreter. Pure.
"""

import traceback
from typing import Final

__all__ = ["TRACEBACK_CHARACTERS_MAX", "storable", "traceback_of"]

# Of a traceback kept with what is parked: some eighty calls, the last ones where there are more.
TRACEBACK_CHARACTERS_MAX: Final = 8_000

# PostgreSQL keeps no NUL in a text.
_NO_NUL: Final = str.maketrans({"\x00": "\N{REPLACEMENT CHARACTER}"})


def traceback_of(error: BaseException) -> str:
    """Returns an error's traceback with its causes, the end of it where it is too long."""
    lines = traceback.format_exception(error)
    return storable("".join(lines))[-TRACEBACK_CHARACTERS_MAX:]


def storable(text: str) -> str:
    """Returns a text that every database takes: what one of them cannot keep is replaced."""
    return text.encode("utf-8", "replace").decode().translate(_NO_NUL)
