"""Typed events come once and with their places, wherever the streams of an aggregate stand."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor.decode import EventField
from headrace.spark.executor.doubts import StoreGaps
from headrace.spark.executor.event_reader import EVENT, ChosenType, Reading
from headrace.spark.executor.fold import (
    MISSING,
    QUEUE,
    RECORD_ARROW_SCHEMA,
    STREAM,
    TALLY,
    UNREAD,
    VERSION,
)
from headrace.spark.executor.streams import read_streams
from headrace.spark.executor.typed_streams import type_streams

BOOKED = ChosenType(
    name="Booked", version=1, fields=(EventField(name="amount", kind=ColumnKind.INTEGER),)
)
NOTED = ChosenType(name="Noted", version=1, fields=())


def read(plan: Any, reading: Reading) -> dict[str, list[dict[str, Any]]]:
    """Rows by kind, without what is null; read in pieces of two records."""
    tasks = iter([pa.RecordBatch.from_pydict({"id": list(range(len(plan.tasks)))})])
    brought = pa.Table.from_batches(read_streams(plan, tasks), RECORD_ARROW_SCHEMA)
    order = [(name, "ascending") for name in ("key", "queue", "offset")]
    found: dict[str, list[dict[str, Any]]] = {}
    streams = iter(brought.sort_by(order).to_batches(max_chunksize=2))
    for batch in type_streams(plan, reading, streams):
        assert batch.schema == reading.arrow_schema
        for row in batch.to_pylist():
            kept = {name: value for name, value in row.items() if value is not None}
            found.setdefault(kept.pop("kind"), []).append(kept)
    return found


def numbers(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["key"]: row["number"] for row in rows}


def test_versions_in_two_queues_come_once_with_the_place_of_what_let_them_pass(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    one, two, three, four = (
        ledger.stream(
            "a", version, ledger.Booked(partner="p", amount=version), ledger.Noted(text="")
        )
        for version in (1, 2, 3, 4)
    )
    topic.publish(ledger.stream("b", 1, ledger.Booked(partner="p", amount=9)), one, three, queue=0)
    topic.publish(two, one, four, queue=1)
    found = read(make_plan("accounts", topic.slices()), Reading(types=(BOOKED, NOTED), context=()))
    places = [(row["e_amount_integer"], row["part"], row["turn"] >> 20, row["turn"] & 0xFFFFF)
              for row in found[EVENT] if row["type"] == 0]  # fmt: skip
    # The third is let pass by the second.
    assert places == [(1, 0, 1, 1), (2, 1, 0, 1), (3, 1, 0, 3), (4, 1, 2, 1), (9, 0, 0, 1)]
    assert numbers(found[VERSION]) == {"a": 4, "b": 1}
    assert numbers(found[TALLY]) == {"events": 9, "duplicates": 1, "gaps": 1}
    assert numbers(found[QUEUE])["ledger.events/1 messages"] == 3
    assert len(found[QUEUE]) == 8


def test_what_is_missing_or_does_not_decode_is_told_once(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    topic.publish(*(ledger.stream("a", v, ledger.Booked(partner="p", amount=v)) for v in (1, 2)), queue=0)  # fmt: skip
    topic.publish(ledger.stream("a", 3, ledger.Booked(partner="p", amount=3)), queue=1)
    topic.publish(ledger.stream("b", 3, ledger.Ended()), queue=1)
    key, headers, body = topic.bodies[0][1]
    topic.bodies[0][1] = (key, headers, body.replace(b'"amount":2', b'"lost":2'))
    plan = make_plan("accounts", topic.slices())
    with pytest.raises(ProjectionError, match=r"events/0 offset 1 \(aggregate a\) does not decode"):
        read(plan, Reading(types=(BOOKED,)))
    found = read(plan, Reading(types=(BOOKED,), context=(), go_around=True))
    assert [row["e_amount_integer"] for row in found[EVENT]] == [1]
    assert [row["key"] for row in found[MISSING]] == ["b versions 1 to 2"]
    assert len(found[UNREAD]) == 1


def test_missing_versions_come_from_the_event_store(
    ledger: Any, topic: Any, make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (ledger.stream("a", v, ledger.Booked(partner="p", amount=v)) for v in (1, 2))
    monkeypatch.setattr(StoreGaps, "__call__", lambda _, wanted: [one])
    topic.publish(two)
    found = read(make_plan("accounts", topic.slices()), Reading(types=(BOOKED,), context=()))
    assert [row["e_amount_integer"] for row in found[EVENT]] == [1, 2]
    assert numbers(found[TALLY])["filled"] == 1


def test_streams_pass_onto_the_versions_that_they_came_with(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    topic.publish(*(ledger.stream("a", v, ledger.Booked(partner="p", amount=v)) for v in (3, 4)), queue=0)  # fmt: skip
    plan = make_plan("accounts", topic.slices())
    tasks = iter([pa.RecordBatch.from_pydict({"id": list(range(len(plan.tasks)))})])
    (streams,) = (
        pa.Table.from_batches(read_streams(plan, tasks))
        .filter(pc.equal(pc.field("kind"), STREAM))
        .to_batches()
    )
    reading = Reading(types=(BOOKED,), context=(), go_around=True)
    place = streams.schema.names.index("number")
    for known, amounts in ((2, [3, 4]), (3, [4]), (4, [])):
        based = streams.set_column(place, "number", pa.array([known] * len(streams)))
        batches = type_streams(plan, reading, iter([based]))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["e_amount_integer"] for row in rows if row["kind"] == EVENT] == amounts
        assert not [row for row in rows if row["kind"] == MISSING]


def test_streams_of_several_batches_go_on_from_the_versions_that_they_came_with(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    versions = [3, 4, 5, 6, 7]
    topic.publish(*(ledger.stream("a", v, ledger.Noted(text="")) for v in versions), queue=0)
    topic.publish(*(ledger.stream("b", v, ledger.Noted(text="")) for v in (1, 2)), queue=0)
    plan = make_plan("accounts", topic.slices())
    tasks = iter([pa.RecordBatch.from_pydict({"id": [0]})])
    brought = pa.Table.from_batches(read_streams(plan, tasks), RECORD_ARROW_SCHEMA)
    # Of an aggregate with more streams than a batch, each says where the files have ended.
    bases = [4 if key == "a" else 0 for key in brought["key"].to_pylist()]
    place = brought.column_names.index("number")
    streams = [kind == "stream" for kind in brought["kind"].to_pylist()]
    based = brought.filter(pa.array(streams)).set_column(
        place, "number", pa.array([base for base, one in zip(bases, streams, strict=True) if one])
    )
    order = [(name, "ascending") for name in ("key", "queue", "offset")]
    found: dict[str, dict[str, int]] = {}
    records = iter(based.sort_by(order).to_batches(max_chunksize=2))
    for batch in type_streams(plan, Reading(types=(NOTED,), context=()), records):
        for row in batch.to_pylist():
            if row["kind"] != EVENT:
                found.setdefault(row["kind"], {})[row["key"]] = row["number"]
    assert found[VERSION] == {"a": 7, "b": 2}
    assert found[TALLY] == {"events": 5, "duplicates": 2}
