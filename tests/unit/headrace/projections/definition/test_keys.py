"""Keys name the rows that an event touches, each once."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import day, field
from headrace.projections.definition.key_form import KeyForm
from headrace.projections.definition.keys import AGGREGATE_KEY, as_key, compile_key
from headrace.projections.definition.shape import ColumnKind, RowField


class Moved(DomainEvent):
    source: str = "ann"
    target: str | None = "bob"
    amount: int = 1


def form_of(**kinds: ColumnKind) -> KeyForm:
    fields = [RowField(name=name, kind=kind, optional=False) for name, kind in kinds.items()]
    return KeyForm("p", fields)


TEXT = form_of(key=ColumnKind.TEXT)
NUMBER = form_of(key=ColumnKind.INTEGER)
PAIR = form_of(who=ColumnKind.TEXT, amount=ColumnKind.INTEGER)
ID = UUID("1b4e28ba-2fa1-11d2-883f-0016d3cca427")

CONTEXT = EventContext(
    aggregate_type="A",
    aggregate_id="a",
    version=1,
    sequence=1,
    command_id="c",
    correlation_id="c",
    recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def keys(key: Any, event: Moved | None = None, form: KeyForm = TEXT) -> tuple[str, ...]:
    return compile_key(as_key(key, form), Moved, form)(event or Moved(), CONTEXT)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, ("a",)),
        ("source", ("ann",)),
        ("context.command_id", ("c",)),
        (day("context.recorded_at"), ("2026-01-01",)),
        (lambda event: event.target, ("bob",)),
        (lambda event, context: context.aggregate_id, ("a",)),
        (lambda event: [event.source, event.target, event.source], ("ann", "bob")),
        (lambda event: (), ()),
    ],
)
def test_every_form_of_a_key_names_rows(key: Any, expected: tuple[str, ...]) -> None:
    assert keys(key) == expected


def test_a_declared_key_that_is_none_names_no_row() -> None:
    assert keys("target", Moved(target=None)) == ()


@pytest.mark.parametrize("key", [None, 7, "x" * 256, ["a", 7]])
def test_a_key_that_no_column_holds_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="a key is a str of at most 255"):
        keys(lambda event: key)


def test_a_declared_key_is_text() -> None:
    with pytest.raises(DefinitionError, match="a key is text"):
        compile_key(as_key("amount", TEXT), Moved, TEXT)


def test_the_aggregates_id_is_the_same_key_however_it_is_said() -> None:
    assert as_key(None, TEXT) is as_key("context.aggregate_id", TEXT) is AGGREGATE_KEY
    assert as_key(field("context.aggregate_id"), TEXT) is AGGREGATE_KEY


@pytest.mark.parametrize(
    ("form", "key", "expected"),
    [
        (NUMBER, "amount", ("1",)),
        (NUMBER, None, ("a",)),
        (NUMBER, lambda event: [event.amount, 7, 1], ("1", "7")),
        (form_of(key=ColumnKind.UUID), lambda event: ID, (str(ID),)),
        (PAIR, ("source", "amount"), ("ann,1",)),
        (PAIR, (day("context.recorded_at"), "amount"), ("2026-01-01,1",)),
        (PAIR, lambda event: ("a,b%", event.amount), ("a%2Cb%25,1",)),
        (PAIR, lambda event: [("a", 1), ("b", 2), ("a", 1)], ("a,1", "b,2")),
        (PAIR, lambda event: (), None),
    ],
)
def test_keys_of_other_types_come_as_text(form: KeyForm, key: Any, expected: Any) -> None:
    if expected is None:
        # A tuple is one key, so an empty one is none that a row could have.
        with pytest.raises(ValueError, match="a key is a tuple"):
            keys(key, form=form)
    else:
        assert keys(key, form=form) == expected


def test_a_part_that_is_none_names_no_row() -> None:
    assert keys(("target", "amount"), Moved(target=None), PAIR) == ()


@pytest.mark.parametrize(
    ("form", "found"),
    [
        (NUMBER, "7"),
        (NUMBER, True),
        (NUMBER, 2**63),
        (NUMBER, [1, "2"]),
        (form_of(key=ColumnKind.UUID), str(ID)),
        (PAIR, ("a",)),
        (PAIR, ("a", "1")),
        (PAIR, [("a", 1, 2)]),
        (PAIR, ("x" * 254, 1)),
    ],
)
def test_a_key_of_another_type_is_refused(form: KeyForm, found: Any) -> None:
    with pytest.raises(ValueError, match=r"a key is an? "):
        keys(lambda event: found, form=form)


def test_terms_fit_the_fields_of_the_key() -> None:
    with pytest.raises(DefinitionError, match=r"key field amount is integer, and .* is text"):
        compile_key(as_key(("source", "target"), PAIR), Moved, PAIR)
    with pytest.raises(DefinitionError, match="fields who, amount, and key_of has 1 of them"):
        as_key("source", PAIR)
    with pytest.raises(DefinitionError, match="the key is one field, key"):
        as_key(("source", "target"), TEXT)
