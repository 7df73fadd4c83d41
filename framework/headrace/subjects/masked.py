"""
Messages without their personal values, for readers who may not see them.

    Registered(customer_id="c-1", email="ann@example.org")  ─▶  Registered(customer_id="c-1", email="[personal]")

Where a field takes no text, its placeholder stands there. A value whose subject was forgotten stays the placeholder that it
is, so a reader can tell the two apart. What is masked is a message of the same class: an aggregate can be replayed from it.

Used by what shows stored events. Pure.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from headrace.subjects.hidden import HIDDEN
from headrace.subjects.personal import personal_fields

__all__ = ["masked"]

M = TypeVar("M", bound=BaseModel)


class _StandIn(NamedTuple):
    """What stands in a field: once its subject is forgotten, and for those who may not read it."""

    placeholder: Any
    hidden: Any


def masked(message: M) -> M:
    """Returns a message without its personal values; the same one where its class has none.

    Args:
        message: as its reader decoded it.
    """
    changed = {
        name: each.hidden
        for name, each in _stand_ins(type(message)).items()
        if getattr(message, name) != each.placeholder
    }
    return message.model_copy(update=changed) if changed else message


@cache
def _stand_ins(model: type[BaseModel]) -> Mapping[str, _StandIn]:
    found: dict[str, _StandIn] = {}
    for name, mark in personal_fields(model).items():
        info = model.model_fields[name]
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        adapter = TypeAdapter(kind)
        placeholder = adapter.validate_python(to_jsonable_python(mark.placeholder))
        try:
            hidden = adapter.validate_python(HIDDEN, strict=True)
        except ValidationError:
            hidden = placeholder
        found[name] = _StandIn(placeholder, hidden)
    return found
