"""Typed reading yields each event once, in columns, and tells what else it met."""

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor.decode import EventField
from headrace.spark.executor.event_reader import EVENT, UNKNOWN, ChosenType, Reading, read_typed
from headrace.spark.executor.fold import MISSING, TALLY, VERSION

PARTNER = EventField(name="partner", kind=ColumnKind.TEXT)
AMOUNT = EventField(name="amount", kind=ColumnKind.INTEGER)
BOOKED = ChosenType(name="Booked", version=1, fields=(PARTNER, AMOUNT))
NOTED = ChosenType(name="Noted", version=1, fields=(EventField(name="text", kind=ColumnKind.TEXT),))


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
    monkeypatch.setattr(
        "headrace.spark.executor.event_reader.find_in_store",
        lambda url, serializer: lambda *of: [one],
    )
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
    counted = Reading(types=(BOOKED,), count_unknown=True)
    assert read(plan, counted)[UNKNOWN] == [{"key": "Forgotten version 1", "part": 0, "number": 2}]


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
