"""
Who is rebuilding: a name that says whether its process still lives.

Used by `rebuild`, which writes the name into the database and compares it with the one there. It
knows no database.
"""

import os
import socket
from typing import Final, Literal

from headrace._runtime.ids import new_id

__all__ = ["Kind", "is_gone", "kind_of", "new_owner"]

# What a shadow is filled from, which the end of its owner's name tells: the event topic; a copy of the
# live rows, and then the topic; the event store; exported files, and then the topic; or it is finished and
# about to be put in place.
Kind = Literal["topic", "copy", "store", "export", "finished"]

# The database keeps 64 characters: room for the process number and the random part.
_HOST_CHARACTERS_MAX = 32
_RANDOM_CHARACTERS = 12
_KINDS: Final[tuple[Kind, ...]] = ("copy", "store", "export", "finished")


def new_owner(kind: Kind = "topic") -> str:
    """Returns a name that is unique to one rebuild of this process.

    Args:
        kind: of the rebuild.
    """
    name = f"{_host()}/{os.getpid()}/{new_id()[-_RANDOM_CHARACTERS:]}"
    return name if kind == "topic" else f"{name}/{kind}"


def kind_of(owner: str) -> Kind:
    """Returns what an owner's shadow is filled from."""
    end = owner.rpartition("/")[2]
    return next((kind for kind in _KINDS if kind == end), "topic")


def is_gone(owner: str) -> bool:
    """Whether the owner's process has ended; False where that cannot be known from here."""
    host, _, rest = owner.partition("/")
    number, _, _ = rest.partition("/")
    if host != _host() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)  # signal 0 asks and does nothing
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _host() -> str:
    return socket.gethostname().replace("/", "-")[:_HOST_CHARACTERS_MAX]
