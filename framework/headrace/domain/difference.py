"""
What is different between two values that should be alike: of one type, in all that they hold.

`==` does not tell a date from its text in a field that takes either, an event from one of its base
class, nor 1 from True. Used by `form` to compare a decoded message with the one that was encoded.
Pure.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["difference"]


def difference(value: Any, again: Any, path: str = "") -> str:
    """Returns a sentence about the first difference, without what the values are; or nothing.

    Args:
        value: what there was.
        again: what came back.
        path: of both, in the message that holds them; empty: it is the message.
    """
    if type(value) is not type(again):
        return (
            f"field {path} holds a value of {type(value).__name__}, which comes back as one of"
            f" {type(again).__name__}"
        )
    if isinstance(value, BaseModel):
        return _of_models(value, again, path)
    if isinstance(value, Mapping):
        return _of_mappings(value, again, path)
    if isinstance(value, list | tuple):
        if len(value) != len(again):
            return f"field {path} holds {len(value)} values, of which {len(again)} come back"
        return _first(
            difference(one, other, f"{path}.{place}")
            for place, (one, other) in enumerate(zip(value, again, strict=True))
        )
    if value == again or (value != value and again != again):
        return ""
    if "__eq__" not in _defined(value) and hasattr(value, "__dict__"):
        return _of_mappings(vars(value), vars(again), path)
    return f"field {path} holds a {type(value).__name__} that does not come back as it was"


def _defined(value: Any) -> set[str]:
    """Returns the names that a value's own class and its bases define, other than `object`."""
    return {name for base in type(value).__mro__[:-1] for name in vars(base)}


def _of_models(value: BaseModel, again: BaseModel, path: str) -> str:
    held = {**vars(value), **(value.__pydantic_extra__ or {})}
    back = {**vars(again), **(again.__pydantic_extra__ or {})}
    return _of_mappings(held, back, path)


def _of_mappings(value: Mapping[Any, Any], again: Mapping[Any, Any], path: str) -> str:
    if value.keys() != again.keys():
        if path:
            return f"field {path} holds keys that do not come back as they are"
        return f"fields {', '.join(sorted(value.keys() ^ again.keys()))} do not come back"
    return _first(
        difference(one, again[key], f"{path}.{key}" if path else str(key))
        for key, one in value.items()
    )


def _first(sentences: Any) -> str:
    return next(filter(None, sentences), "")
