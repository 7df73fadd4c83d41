"""Typed reading yields each event once, in columns, and tells what else it met."""

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import DamagedStream, ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor import event_reader
from headrace.spark.executor.decode import EventField
from headrace.spark.executor.doubts import StoreGaps
from headrace.spark.executor.event_reader import EVENT, UNKNOWN, ChosenType, Reading, read_typed
from headrace.spark.executor.fold import MISSING, TALLY, UNREAD, VERSION

PARTNER = EventField(name="partner", kind=ColumnKind.TEXT)
AMOUNT = EventField(name="amount", kind=ColumnKind.INTEGER)
BOOKED = ChosenType(name="Booked", version=1, fields=(PARTNER, AMOUNT))
NOTED = ChosenType(name="Noted", version=1, fields=(EventField(name="text", kind=ColumnKind.TEXT),))


PLACE = pa.RecordBatch.from_pydict({"id": [0]})


def read(plan: Any, reading: Reading) -> dict[str, list[dict[str, Any]]]:
    """Rows by kind, without what is null."""
    places = iter([pa.RecordBatch.from_pydict({"id": list(range(len(plan.slices)))})])
    found: dict[str, list[dict[str, Any]]] = {}
    for batch in read_typed(plan, reading, places):
        assert batch.schema == reading.arrow_schema
        for row in batch.to_pylist():
            kept = {name: value for name, value in row.items() if value is not None}
            found.setdefault(kept.pop("kind"), []).append(kept)
    return found


def test_each_event_is_a_row_with_the_chosen_fields_of_its_type(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    first = ledger.stream("a", 1, ledger.Booked(partner="p", amount=5), ledger.Noted(text="x"))
    topic.publish(first, ledger.stream("a", 2, ledger.Ended()), queue=1)
    reading = Reading(types=(BOOKED, NOTED), context=("aggregate_id", "sequence", "recorded_at"))
    found = read(make_plan("accounts", topic.slices()), reading)
    moment = int(first.recorded_at.timestamp()) * 1_000_000 + first.recorded_at.microsecond
    context = {"c_aggregate_id": "a", "c_recorded_at": moment, "moment": 100, "part": 1}
    assert found[EVENT] == [
        {**context, "type": 0, "turn": 1, "c_sequence": 1, "e_partner_text": "p", "e_amount_integer": 5},
        {**context, "type": 1, "turn": 2, "c_sequence": 2, "e_text_text": "x"},
    ]  # fmt: skip
    assert found[VERSION] == [{"key": "a", "part": 1, "number": 2}]
    assert found[TALLY] == [{"key": "events", "part": 1, "number": 3}]


def test_wide_events_come_in_bounded_batches(
    ledger: Any, topic: Any, make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reader, "BATCH_BYTES_MAX", 1 << 20)
    for number in range(60):
        topic.publish(ledger.stream(f"a{number}", 1, ledger.Noted(text="n" * 70_000)), queue=0)
    reading = Reading(types=(NOTED,), context=())
    made = list(read_typed(make_plan("accounts", topic.slices()), reading, iter([PLACE])))
    # What came last, three messages of this topic, may go beyond the bound.
    assert max(batch.nbytes for batch in made) < (1 << 20) + 3 * 71_000
    assert sum(batch["kind"].to_pylist().count(EVENT) for batch in made) == 60


def test_a_version_comes_once_and_in_order_or_is_said_to_be_missing(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    one, two, three = (
        ledger.stream("a", version, ledger.Booked(partner="p", amount=version))
        for version in (1, 2, 3)
    )
    topic.publish(two, one, two, three, ledger.rejection("a"), ledger.stream("b", 3, ledger.Ended()), queue=0)  # fmt: skip
    reading = Reading(types=(BOOKED,), context=())
    found = read(make_plan("accounts", topic.slices()), reading)
    assert [row["e_amount_integer"] for row in found[EVENT]] == [1, 2, 3]
    assert {row["key"]: row["number"] for row in found[TALLY]} == (
        {"events": 3, "duplicates": 1, "gaps": 2}
    )
    assert [row["key"] for row in found[MISSING]] == ["b versions 1 to 2"]


def test_missing_versions_come_from_the_event_store(
    ledger: Any, topic: Any, make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (
        ledger.stream("a", version, ledger.Booked(partner="p", amount=version))
        for version in (1, 2)
    )
    monkeypatch.setattr(StoreGaps, "__call__", lambda _, wanted: [one])
    topic.publish(two)
    found = read(make_plan("accounts", topic.slices()), Reading(types=(BOOKED,), context=()))
    assert [row["e_amount_integer"] for row in found[EVENT]] == [1, 2]


def test_an_unknown_event_is_an_error_or_counted_never_left_out_in_silence(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Ended(), ledger.Ended()), queue=0)
    ((key, headers, body),) = topic.bodies[0]
    stored = json.loads(body)
    for event in stored["events"]:
        event["name"] = "Forgotten"
    topic.bodies[0][0] = (key, headers, json.dumps(stored).encode())
    plan = make_plan("accounts", topic.slices())
    with pytest.raises(ProjectionError, match=r"queue|offset 0 \(aggregate a\) .*'Forgotten'"):
        read(plan, Reading(types=(BOOKED,)))
    counted = Reading(types=(BOOKED,), go_around=True)
    assert read(plan, counted)[UNKNOWN] == [{"key": "Forgotten version 1", "part": 0, "number": 2}]


def spoil(topic: Any, queue: int, place: int, old: bytes, new: bytes) -> None:
    """Changes what stands in the topic, as a row of the event store that was changed would."""
    key, headers, body = topic.bodies[queue][place]
    assert old in body
    topic.bodies[queue][place] = (key, headers, body.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"amount":2', b'"amount":"no"'),
        (b'"amount":2', b'"lost":2'),
        (b'"version":2', b'"version":"two"'),
    ],
    ids=["a value", "a field", "the stream"],
)
def test_a_stream_that_does_not_decode_leaves_its_aggregate_out_from_there_on(
    ledger: Any, topic: Any, make_plan: Any, old: bytes, new: bytes
) -> None:
    streams = [
        ledger.stream(
            key, version, ledger.Noted(text="x"), ledger.Booked(partner=key, amount=version)
        )
        for version in (1, 2, 3)
        for key in "ab"
    ]
    topic.publish(*streams, queue=0)
    spoil(topic, 0, 2, old, new)
    plan = make_plan("accounts", topic.slices())
    with pytest.raises(ProjectionError, match=r"/0 offset 2 \(aggregate a\) does not decode"):
        read(plan, Reading(types=(BOOKED, NOTED)))
    for context in ((), ("aggregate_id",)):
        found = read(plan, Reading(types=(BOOKED, NOTED), context=context, go_around=True))
        booked = [row["e_amount_integer"] for row in found[EVENT] if row["type"] == 0]
        assert sorted(booked) == [1, 1, 2, 3]
        assert len([row for row in found[EVENT] if row["type"] == 1]) == 4
        [told] = found[UNREAD]
        assert "/0 offset 2 (aggregate a) does not decode" in told["key"]
        assert MISSING not in found
    silent = read(plan, Reading(types=(BOOKED, NOTED), go_around=True, rows=False))
    assert (EVENT in silent, len(silent[UNREAD])) == (False, 1)


def test_what_the_event_store_cannot_read_either_is_left_out(
    ledger: Any, topic: Any, make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: Any, wanted: Any) -> Any:
        if any(aggregate_id == "a" for aggregate_id, _, _ in wanted):
            raise DamagedStream(7, "a", 2, "c", "its checksum differs")
        return [ledger.stream(key, to, ledger.Ended()) for key, _, to in wanted]

    monkeypatch.setattr(StoreGaps, "__call__", find)
    topic.publish(
        *(ledger.stream(key, version, ledger.Ended()) for key in "bacd" for version in (1, 3)),
        queue=0,
    )
    plan = make_plan("accounts", topic.slices())
    found = read(plan, Reading(types=(), go_around=True))
    [told] = found[UNREAD]
    assert told["key"].startswith("versions 2 to 2 of aggregate a")
    assert MISSING not in found
    assert {row["key"]: row["number"] for row in found[VERSION]} == {"a": 1, "b": 3, "c": 3, "d": 3}
    with pytest.raises(ProjectionError, match="versions 2 to 2 of aggregate a"):
        read(plan, Reading(types=()))


def test_a_number_that_no_column_holds_is_an_error(ledger: Any, topic: Any, make_plan: Any) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Booked(partner="p", amount=1 << 70)))
    with pytest.raises(ProjectionError, match="does not fit its column"):
        read(make_plan("accounts", topic.slices()), Reading(types=(BOOKED,)))


def test_types_share_the_columns_of_fields_that_are_alike() -> None:
    other = ChosenType(name="Other", version=1, fields=(PARTNER,))
    odd = EventField(name="partner", kind=ColumnKind.INTEGER)
    third = ChosenType(name="Third", version=1, fields=(odd,))
    reading = Reading(types=(BOOKED, other, third), context=())
    assert list(reading.columns) == ["e_partner_text", "e_amount_integer", "e_partner_integer"]
    assert reading.schema.endswith("`e_amount_integer` bigint, `e_partner_integer` bigint")
