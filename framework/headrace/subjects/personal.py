"""
The declaration of a personal field: whose value it is, and what stands in its place once forgotten.

Used by message classes; all that they can get wrong is found when an application is put together. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from headrace.errors import DefinitionError

__all__ = ["FORGOTTEN", "Personal", "check_personal", "personal_fields"]

# What readers get in place of a text whose subject is forgotten.
FORGOTTEN: Final = "[forgotten]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Personal:
    """Marks a field of a message that is encrypted wherever the message is stored or sent.

        class Registered(DomainEvent):
            customer_id: str
            email: Annotated[str, Personal(subject="customer_id")]

    Attributes:
        subject: the field of the same message that names the person; its value stays readable.
        placeholder: what readers get once the subject is forgotten; a value of the field's type.
    """

    subject: str
    placeholder: Any = FORGOTTEN


def personal_fields(model: type[BaseModel]) -> Mapping[str, Personal]:
    """Returns the personal fields of a message class by name.

    Raises:
        DefinitionError: a declaration names no field, or stands where it would not be seen.
    """
    found: dict[str, Personal] = {}
    for name, info in model.model_fields.items():
        marks = [each for each in info.metadata if isinstance(each, Personal)]
        if marks:
            found[name] = marks[-1]
        if any(_marks_within(info.annotation, set())):
            raise DefinitionError(
                f"{model.__name__}: Personal stands inside the type of {name}, where it has no"
                " effect; annotate the field itself: Annotated[TYPE, Personal(…)]"
            )
    for name, mark in found.items():
        if mark.subject not in model.model_fields:
            raise DefinitionError(
                f"{model.__name__}: {name} is personal to {mark.subject!r}, which is no field of the"
                " message; name the field that holds the person's id"
            )
        if mark.subject in found:
            raise DefinitionError(
                f"{model.__name__}: {mark.subject} names a subject and cannot be personal itself"
            )
    return found


def check_personal(model: type[BaseModel], fields: Mapping[str, Personal]) -> None:
    """Returns if each placeholder is a value of its field.

    Raises:
        DefinitionError: one is not.
    """
    for name, mark in fields.items():
        info = model.model_fields[name]
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        try:
            TypeAdapter(kind).validate_python(to_jsonable_python(mark.placeholder))
        except ValidationError as error:
            raise DefinitionError(
                f"{model.__name__}: the placeholder of {name} is no value of that field; give"
                f" Personal(subject={mark.subject!r}, placeholder=…) one of its type"
            ) from error


def _marks_within(annotation: Any, seen: set[type]) -> Iterator[Personal]:
    """Yields declarations inside a type: of a list's items, or of a field of a model in it."""
    if get_origin(annotation) is Annotated:
        yield from (each for each in annotation.__metadata__ if isinstance(each, Personal))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation in seen:
            return
        seen.add(annotation)
        for info in annotation.model_fields.values():
            yield from (each for each in info.metadata if isinstance(each, Personal))
            yield from _marks_within(info.annotation, seen)
    for inner in get_args(annotation):
        yield from _marks_within(inner, seen)
