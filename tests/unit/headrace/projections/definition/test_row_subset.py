"""A narrowed projection makes the rows of its keys, and no others."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace import DomainEvent, EventContext, Projection
from headrace.domain.stream import EventStream
from headrace.projections.definition.expressions import field
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.row_subset import narrowed
from headrace.projections.definition.summaries import last, sum_


class Sent(DomainEvent):
    source: str
    target: str
    amount: int


class Closed(DomainEvent):
    pass


class Row(BaseModel):
    key: str
    amount: int = 0
    seen: str = ""


def own() -> Projection[Row]:
    """A row per aggregate, declared."""
    made = Projection("own", row=Row, key="key")
    made.on(Sent, amount=sum_("amount"), seen=last("target"))
    made.on(Sent, where=field("amount") > 5, amount=sum_("amount"))
    return made


def both() -> Projection[Row]:
    """Two rows for an event, by a fold that deletes rows of zero and depends on the order."""
    made = Projection("both", row=Row, key="key")

    @made.fold(key=lambda event: [event.source, event.target])
    def sent(row: Row | None, event: Sent, context: EventContext, key: str) -> Row | None:
        amount = (row.amount if row else 0) * 3 + event.amount
        return Row(key=key, amount=amount, seen=context.aggregate_id) if amount % 4 else None

    @made.fold
    def closed(row: Row | None, event: Closed, context: EventContext) -> None:
        return None

    return made


KEYS = st.sampled_from("abcd")
EVENTS = st.one_of(
    st.builds(Sent, source=KEYS, target=KEYS, amount=st.integers(-9, 9)), st.builds(Closed)
)


@given(
    make=st.sampled_from([own, both]),
    happened=st.lists(st.tuples(KEYS, EVENTS), max_size=30),
    only=st.frozensets(KEYS),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_rows_of_its_keys_are_those_of_the_whole(
    domain: Any,
    make: Callable[[], Projection[Row]],
    happened: list[tuple[str, DomainEvent]],
    only: frozenset[str],
) -> None:
    projection = make()
    versions: dict[str, int] = {}
    streams: list[EventStream] = []
    for aggregate_id, event in happened:
        versions[aggregate_id] = versions.get(aggregate_id, 0) + 1
        streams.append(domain.stream(aggregate_id, versions[aggregate_id], event))
    whole = fold_streams(projection, {}, streams)
    few = narrowed(projection, only)
    assert fold_streams(few, {}, streams) == {key: whole[key] for key in whole if key in only}
    assert (few.name, few.key, few.keyed_by_aggregate) == (
        projection.name, projection.key, projection.keyed_by_aggregate
    )  # fmt: skip
    # The whole one is as it was.
    assert fold_streams(projection, {}, streams) == whole
