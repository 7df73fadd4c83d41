"""
Who is rebuilding: a name for the database, which says what the shadow is filled from.

Used by `rebuild`, which holds a lock by that name as long as it runs. It knows no database.
"""

import os
import socket
from typing import Final, Literal

from headrace._runtime.ids import new_id

__all__ = ["Kind", "has_lock", "kind_of", "new_owner"]

# What a shadow is filled from, which the end of its owner's name tells: the event topic; a copy of the
# live rows, and then the topic; the event store; exported files, and then the topic; or it is finished and
# about to be put in place; the event topic up to a moment.
Kind = Literal["topic", "copy", "store", "export", "finished", "moment"]

# The database keeps 64 characters: room for the process number and the random part.
_HOST_CHARACTERS_MAX = 32
_RANDOM_CHARACTERS = 12
_KINDS: Final[tuple[Kind, ...]] = ("copy", "store", "export", "finished", "moment")
# Names of versions before, which held no lock, have a slash instead.
_SEPARATOR: Final = ":"


def new_owner(kind: Kind = "topic") -> str:
    """Returns a name that is unique to one rebuild of this process.

    Args:
        kind: of the rebuild.
    """
    parts = [_host(), str(os.getpid()), new_id()[-_RANDOM_CHARACTERS:]]
    return _SEPARATOR.join(parts if kind == "topic" else [*parts, kind])


def kind_of(owner: str) -> Kind:
    """Returns what an owner's shadow is filled from."""
    end = owner.replace("/", _SEPARATOR).rpartition(_SEPARATOR)[2]
    return next((kind for kind in _KINDS if kind == end), "topic")


def has_lock(owner: str) -> bool:
    """Whether an owner holds a lock as long as it runs; False of one of a version before."""
    return _SEPARATOR in owner


def _host() -> str:
    return socket.gethostname().replace(_SEPARATOR, "-")[:_HOST_CHARACTERS_MAX]
