"""Which types have a column, and what the sentence says of those that have none."""

from datetime import timedelta
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, RootModel

from headrace.projections.definition.column_types import (
    ColumnKind,
    NoColumn,
    column_type,
    kind_of,
)


class Mixed(Enum):
    ONE = 1
    TWO = "2"


class Part(BaseModel):
    name: str
    size: Literal["s", "m"] | None = None
    parts: "list[Part]"


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.mark.parametrize(
    ("annotation", "kind", "optional"),
    [
        (UUID, ColumnKind.UUID, False),
        (bytes | None, ColumnKind.BYTES, True),
        (Literal["a", "b"], ColumnKind.TEXT, False),
        (Literal[1, 2] | None, ColumnKind.INTEGER, True),
        (Literal["a", None], ColumnKind.TEXT, True),
        (list[int] | None, ColumnKind.JSON, True),
        (dict[str, list[Part]], ColumnKind.JSON, False),
        (Part, ColumnKind.JSON, False),
    ],
)
def test_a_type_has_a_kind(annotation: Any, kind: ColumnKind, optional: bool) -> None:
    found = column_type(annotation)
    assert (found.kind, found.optional) == (kind, optional)
    # Engines that know no more than the plain types leave it to Python.
    assert kind_of(annotation)[0] is None


def test_the_structure_of_json_is_names_and_types() -> None:
    assert column_type(dict[str, Part | None]).structure == "{(name:text,size:text?,parts:[Part])?}"


@pytest.mark.parametrize(
    ("annotation", "sentence"),
    [
        (set[str], "use a list"),
        (frozenset[str], "use a list"),
        (tuple[int, str], "no tuples"),
        (tuple, "no tuples"),
        (list[set[int]], "use a list"),
        (list, r"list\[str\]"),
        (dict, r"dict\[str, int\]"),
        (dict[int, str], "keys of a dict must be str"),
        (Any, "name the type"),
        (list[Any], "name the type"),
        (int | str, "of several types"),
        (list[int | str], "of several types"),
        (list[bytes], "JSON has no bytes"),
        (Mixed, "must all be str, or all be int"),
        (Literal["a", 1], "must all be str, or all be int"),
        (Literal[True], "must all be str, or all be int"),
        (RootModel[int], "use the type in it"),
        (Loose, "extra fields"),
        (timedelta, "a column is str"),
        (list[timedelta], "a column is str"),
    ],
)
def test_a_type_without_a_column_is_refused_with_another(annotation: Any, sentence: str) -> None:
    with pytest.raises(NoColumn, match=sentence):
        column_type(annotation)
