"""Keys name the rows that an event touches, each once."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import day, field
from headrace.projections.definition.keys import AGGREGATE_KEY, as_key, compile_key


class Moved(DomainEvent):
    source: str = "ann"
    target: str | None = "bob"
    amount: int = 1


CONTEXT = EventContext(
    aggregate_type="A",
    aggregate_id="a",
    version=1,
    sequence=1,
    command_id="c",
    correlation_id="c",
    recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def keys(key: Any, event: Moved | None = None) -> tuple[str, ...]:
    return compile_key(as_key(key), Moved)(event or Moved(), CONTEXT)


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
        compile_key(as_key("amount"), Moved)


def test_the_aggregates_id_is_the_same_key_however_it_is_said() -> None:
    assert as_key(None) is as_key("context.aggregate_id") is AGGREGATE_KEY
    assert as_key(field("context.aggregate_id")) is AGGREGATE_KEY
