"""An index is checked where the projection is defined."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.errors import DefinitionError
from headrace.projections.definition.index import INDEX_FIELDS_MAX, Index
from headrace.projections.definition.projection import Projection


class Row(BaseModel):
    key: str
    owner: str
    price: Decimal
    tags: list[str]


def test_a_mark_is_that_of_the_fields_in_order_and_of_being_unique() -> None:
    indexes = [Index("a", "b"), Index("b", "a"), Index("a", "b", unique=True), Index("a b")]
    assert len({each.mark for each in indexes[:3]}) == 3
    assert Index("a", "b") == indexes[0]
    # A name of a field has no space.
    assert {len(each.mark) for each in indexes} == {8}


@pytest.mark.parametrize(
    "indexes",
    [
        [Index()],
        [Index("nothing")],
        [Index("owner", "owner")],
        [Index("tags")],
        [Index("price", unique=True)],
        [Index("owner"), Index("owner")],
        [Index(*["owner"] * (INDEX_FIELDS_MAX + 1))],
        ["owner"],
    ],
)
def test_an_index_that_no_table_can_have_is_refused(indexes: Any) -> None:
    with pytest.raises(DefinitionError, match="projection p"):
        Projection("p", row=Row, key="key", indexes=indexes)


def test_indexes_play_no_part_in_the_fingerprint() -> None:
    plain = Projection("p", row=Row, key="key")
    assert Projection("p", row=Row, key="key", indexes=[Index("price")]).fingerprint == (
        plain.fingerprint
    )
