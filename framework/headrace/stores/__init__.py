"""
The event store: its port and the adapters for memory, SQLite and PostgreSQL.

Used by the command side, which appends and loads. Read models use its lower layer, too:
`database.engines` opens a database, `database.schema` brings its tables up to date, `database.tables`
defines them.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded when a name is first used
    from headrace.stores.open import open_event_store

__all__ = ["open_event_store"]

_HOMES = MappingProxyType({"open_event_store": "headrace.stores.open"})


def __getattr__(name: str) -> Any:
    """Loads a name of the face from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
