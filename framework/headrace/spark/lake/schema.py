"""
Whether a table can take rows of a type that has grown: columns and fields may be added. Pure.

Types are in JSON, in the words that Spark and Delta share. Used by `parts` and `delta` before they write.
"""

import json
from typing import Any

from headrace.errors import ProjectionError

__all__ = ["is_wider"]


def is_wider(where: str, stored: str, wanted: str) -> bool:
    """Returns whether a type has columns, or fields of structs, that a stored one lacks.

    Args:
        where: the table, for the sentence.
        stored: the type of its rows.
        wanted: the type of rows that are to be added.

    Raises:
        ProjectionError: a column or a field has another type; names it.
    """
    return _is_wider(where, "", json.loads(stored), json.loads(wanted))


def _is_wider(where: str, name: str, stored: Any, wanted: Any) -> bool:
    if not (_is_struct(stored) and _is_struct(wanted)):
        if stored != wanted:
            raise ProjectionError(
                f"{where}: {name} is {_word(stored)} there, and {_word(wanted)} in the application now;"
                " write into an empty folder"
            )
        return False
    own = {field["name"]: field["type"] for field in stored["fields"]}
    found = False
    for field in wanted["fields"]:
        part = field["name"]
        if part in own:
            below = f"{name}.{part}" if name else part
            found |= _is_wider(where, below, own[part], field["type"])
        else:
            found = True
    return found


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and kind.get("type") == "struct"


def _word(kind: Any) -> str:
    return kind["type"] if isinstance(kind, dict) else str(kind)
