"""
Who is rebuilding: a name that says whether its process still lives.

Sits between: `rebuild`, which writes the name into the database, and the next one that finds it
there. Knows no database.
"""

import os
import socket

from headrace._runtime.ids import new_id

__all__ = ["holds_copy", "is_gone", "new_owner"]

# The database keeps 64 characters: room for the process number and the random part.
_HOST_CHARACTERS_MAX = 32
_RANDOM_CHARACTERS = 12
# What a rebuild that begins with a copy of the live rows has at the end of its name.
_COPY = "/copy"


def new_owner(*, copying: bool = False) -> str:
    """Returns a name that is unique to one rebuild of this process.

    Args:
        copying: the rebuild begins with a copy of the live rows.
    """
    name = f"{_host()}/{os.getpid()}/{new_id()[-_RANDOM_CHARACTERS:]}"
    return name + _COPY if copying else name


def holds_copy(owner: str) -> bool:
    """Whether what an owner has built may hold rows that were copied, and not folded."""
    return owner.endswith(_COPY)


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
