"""
`Index`: fields of a row model that you search by, or that no two rows may share.

    Index("owner")                              rows by owner are found without reading the table
    Index("owner", "opened_on", unique=True)    no two rows have the same owner and day

Used by `Projection`; each generation's table has an index for each. Pure.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.errors import DefinitionError
from headrace.projections.definition.column_types import ColumnKind
from headrace.projections.definition.shape import RowField

__all__ = ["INDEX_FIELDS_MAX", "Index", "check_indexes"]

# Fields of one index: each makes it larger, and no condition has more.
INDEX_FIELDS_MAX: Final = 8
_MARK_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True, init=False)
class Index:
    """An index on fields of a row model.

    Args:
        fields: their names; an index serves conditions on the first one, the first two and so on.
        unique: no two rows may have the same values, unless one of the values is None.
    """

    fields: tuple[str, ...]
    unique: bool

    def __init__(self, *fields: str, unique: bool = False) -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "unique", unique)

    @property
    def mark(self) -> str:
        """The same for the same definition; 8 hexadecimal digits."""
        said = f"{' '.join(self.fields)} {self.unique}"
        return hashlib.sha256(said.encode()).hexdigest()[:_MARK_CHARACTERS]


def check_indexes(owner: str, fields: Sequence[RowField], indexes: Sequence[Index]) -> None:
    """Looks whether a table can have these indexes.

    Raises:
        DefinitionError: it cannot; the sentence names the projection and the index.
    """
    kinds = {field.name: field.kind for field in fields}
    for index in indexes:
        if not isinstance(index, Index):
            raise DefinitionError(f"projection {owner}: {index!r} is no Index")
        wrong = _wrong(index, kinds)
        if wrong:
            raise DefinitionError(f"projection {owner}: {index!r} {wrong}")
    if len(set(indexes)) < len(indexes):
        raise DefinitionError(f"projection {owner} has the same Index twice")


def _wrong(index: Index, kinds: dict[str, ColumnKind]) -> str:
    if not 1 <= len(index.fields) <= INDEX_FIELDS_MAX:
        return f"must name 1 to {INDEX_FIELDS_MAX} fields"
    unknown = [name for name in index.fields if name not in kinds]
    if unknown or len(set(index.fields)) < len(index.fields):
        return f"must name fields of the row, each once; there are {', '.join(kinds)}"
    if any(kinds[name] is ColumnKind.JSON for name in index.fields):
        return "names a list, dict or model, which is kept as JSON and has no order"
    if index.unique and any(kinds[name] is ColumnKind.DECIMAL for name in index.fields):
        return (
            "is unique by a Decimal, which SQLite keeps as text: 1.0 and 1.00 would not be the same"
        )
    return ""
