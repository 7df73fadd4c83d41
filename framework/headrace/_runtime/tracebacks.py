"""
Where an error of a user's function came from, as text to be kept and logged.

Never with local variables, which hold passwords and people's data. Used where users' functions are
called, for the log and for what is parked. Pure.
"""

from pathlib import Path
from traceback import TracebackException
from types import TracebackType
from typing import Final

__all__ = ["TRACEBACK_CHARACTERS_MAX", "storable", "traceback_of"]

# Characters kept from the end of a traceback, where the error is: some fifty calls.
TRACEBACK_CHARACTERS_MAX: Final = 8_000

# PostgreSQL keeps no NUL in a text.
_NO_NUL: Final = str.maketrans({"\x00": "\N{REPLACEMENT CHARACTER}"})
_PACKAGE: Final = str(Path(__file__).parents[1])


def traceback_of(error: BaseException) -> str:
    """Returns the traceback of an error, from the first call outside of Headrace on.

    Args:
        error: with what caused it, if anything did.
    """
    begin = error.__traceback__
    while begin is not None and _is_ours(begin):
        begin = begin.tb_next
    # One that Headrace itself raised is not the user's, and is shown whole.
    described = TracebackException(type(error), error, begin or error.__traceback__)
    text = storable("".join(described.format())).rstrip("\n")
    if len(text) > TRACEBACK_CHARACTERS_MAX:
        return f"… {len(text) - TRACEBACK_CHARACTERS_MAX} characters …\n{text[-TRACEBACK_CHARACTERS_MAX:]}"
    return text


def _is_ours(place: TracebackType) -> bool:
    return place.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def storable(text: str) -> str:
    """Returns a text that every database takes: what one of them cannot keep is replaced."""
    return text.encode("utf-8", "replace").decode().translate(_NO_NUL)
