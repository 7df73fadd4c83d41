"""
Where an error of a user's function came from, as text to be kept and logged.

Never with local variables, which hold passwords and people's data. Sits between: what calls users'
functions, and the log and the letters. Pure.
"""

from pathlib import Path
from traceback import TracebackException
from types import TracebackType
from typing import Final

__all__ = ["trace_of"]

# The end of a long one is kept, where the error is: some fifty calls.
TRACE_CHARACTERS_MAX: Final = 8_000

_PACKAGE: Final = str(Path(__file__).parents[1])


def trace_of(error: BaseException) -> str:
    """Returns the traceback of an error, from the first call outside of Headrace on.

    Args:
        error: with what caused it, if anything did.
    """
    begin = error.__traceback__
    while begin is not None and _is_ours(begin):
        begin = begin.tb_next
    # One that Headrace itself raised is not the user's, and is shown whole.
    described = TracebackException(type(error), error, begin or error.__traceback__)
    text = "".join(described.format()).rstrip("\n")
    if len(text) > TRACE_CHARACTERS_MAX:
        return f"… {len(text) - TRACE_CHARACTERS_MAX} characters …\n{text[-TRACE_CHARACTERS_MAX:]}"
    return text


def _is_ours(place: TracebackType) -> bool:
    return place.tb_frame.f_code.co_filename.startswith(_PACKAGE)
