"""Which handler an event goes to."""

from typing import Any

import pytest

from headrace.subscriptions.handler_match import nearest, types_in


class Base:
    pass


class Middle(Base):
    pass


class Leaf(Middle):
    pass


def test_a_type_gets_its_own_entry_or_that_of_its_nearest_base() -> None:
    table = {Base: "base", Leaf: "leaf"}
    assert [nearest(table, each) for each in (Base, Middle, Leaf)] == ["base", "base", "leaf"]
    assert nearest({Leaf: "leaf"}, Middle) is None


@pytest.mark.parametrize(
    ("hint", "types"),
    [
        (Leaf, (Leaf,)),
        (Leaf | Middle, (Leaf, Middle)),
        (Leaf | None, ()),
        (int, ()),
        (None, ()),
        (Any, ()),
    ],
)
def test_an_annotation_names_one_class_or_several_of_one_kind(hint: Any, types: Any) -> None:
    assert types_in(hint, Base) == types
