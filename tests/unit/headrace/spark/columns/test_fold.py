"""What columns make of exported files is what Python makes of the events, whatever is declared."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, create_model, field_validator

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.folds import count, day, field, first, last, literal, max_, min_, sum_
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection
from headrace.spark.analysis.export import export_events
from headrace.spark.archive import parts_of
from headrace.spark.columns.files import find_files, find_versions
from headrace.spark.columns.fold import fold_files, rows_of
from headrace.spark.columns.touches import plan_columns
from headrace_mq.protocol.bodies import QueueRange

TOPIC = "ledger.events"


class Happened(DomainEvent):
    partner: str | None = None


class Paid(Happened, version=2):
    amount: int
    price: Decimal
    fee: Decimal | None = None
    on: date
    at: datetime | None = None
    rate: float = 0.5
    cash: bool = False


class Moved(Happened):
    source: str
    target: str
    amount: int


class Visited(Happened):
    pass


class Renamed(DomainEvent):
    name: str

    @field_validator("name")
    @classmethod
    def _shout(cls, value: str) -> str:
        return value.upper()


class Ledger(Aggregate):
    @applies
    def _paid(self, event: Paid) -> None:
        pass

    @applies
    def _moved(self, event: Moved) -> None:
        pass

    @applies
    def _visited(self, event: Visited) -> None:
        pass

    @applies
    def _renamed(self, event: Renamed) -> None:
        pass


# By kind of value, and by event, the terms of that kind.
OF_ALL: dict[Any, list[Any]] = {
    str: [
        field("context.aggregate_id"), field("context.command_id"), day("context.recorded_at"),
        literal("ü"),
    ],
    int: [field("context.version"), -field("context.sequence"), literal(5)],
    float: [literal(0.25)],
    bool: [literal(value=True)],
    Decimal: [literal(Decimal("1.50")), literal(Decimal("-0.0"))],
    date: [literal(date(1969, 12, 31))],
    datetime: [field("context.recorded_at")],
}  # fmt: skip
OF_EVENTS: dict[type[DomainEvent], dict[Any, list[Any]]] = {
    DomainEvent: {},
    Happened: {str: [field("partner")]},
    Paid: {
        str: [field("partner"), day("on"), day("at")],
        int: [field("amount"), -field("amount")],
        float: [field("rate"), -field("rate")],
        bool: [field("cash"), field("amount") > 3, field("fee").is_none()],
        Decimal: [field("price"), -field("price"), field("fee"), -field("fee")],
        date: [field("on")],
        datetime: [field("at")],
    },
    Moved: {str: [field("source"), field("target"), field("partner")], int: [field("amount")]},
    Visited: {str: [field("partner")]},
    Renamed: {str: [field("name")]},
}
WHERE: dict[type[DomainEvent], list[Any]] = {
    Paid: [
        field("price") > 2,
        field("fee") <= Decimal("1.5"),
        ~(field("cash") == literal(True)) | (field("amount") <= 0),
        (field("partner") != "p") & (field("at") < datetime(1970, 1, 3, tzinfo=UTC)),
        field("partner").is_in("p", "zoë 😀"),
        field("cash") < literal(value=True),
        field("rate") >= 0.5,
        field("on") > date(1970, 1, 1),
        ~field("fee").is_none(),
        field("amount") < field("price"),
    ],
    Moved: [field("source") < field("target"), field("partner") > "p", field("amount") == 3],
}  # fmt: skip
OPERATIONS = {"sum": sum_, "first": first, "last": last, "min": min_, "max": max_}
STARTS: dict[Any, Any] = {
    str: "s", int: 7, float: 0.75, bool: True, Decimal: Decimal("0.500"), date: date(2000, 1, 1),
    datetime: datetime(2000, 1, 1, tzinfo=UTC),
}  # fmt: skip


@st.composite
def projections(draw: st.DrawFn) -> Projection[Any]:
    """Any row of up to five columns, and up to five rules for it."""
    columns: dict[str, tuple[Any, str]] = {}
    fields: dict[str, Any] = {"key": (str, ...)}
    for place in range(draw(st.integers(1, 5))):
        operation = draw(st.sampled_from(sorted(OPERATIONS)))
        kinds = [int, Decimal] if operation == "sum" else list(STARTS)
        kind = draw(st.sampled_from(kinds))
        columns[f"c{place}"] = kind, operation
        if operation == "sum" and draw(st.booleans()):
            fields[f"c{place}"] = (kind, ...)
        else:
            fields[f"c{place}"] = (kind | None, draw(st.sampled_from([None, STARTS[kind]])))
    row: type[BaseModel] = create_model("Row", **fields)
    by_aggregate = draw(st.booleans())
    made = Projection("made", row=row, key="key")
    for _ in range(draw(st.integers(1, 5))):
        event = draw(st.sampled_from([Paid, Paid, Paid, *OF_EVENTS]))

        def term(kind: Any, event: type[DomainEvent] = event) -> Any:
            return draw(st.sampled_from(OF_ALL[kind] + OF_EVENTS[event].get(kind, [])))

        kept = {
            name: count()
            if (kind, operation) == (int, "sum") and draw(st.booleans())
            else OPERATIONS[operation](term(kind))
            for name, (kind, operation) in columns.items()
            if draw(st.booleans())
        }
        where = draw(st.sampled_from([None, *WHERE.get(event, [])]))
        made.on(event, key=None if by_aggregate else term(str), where=where, **kept)
    return made


PARTNERS = st.sampled_from([None, "p", "q", "ü'\\", "zoë 😀"])
# Many are equal and differ in their places.
DECIMALS = st.sampled_from(
    ["1", "1.0", "1.00", "-0.5", "-0.50", "2E+1", "20.0", "-0", "0.123456"]
).map(Decimal)
ZONES = st.integers(-9, 9).map(lambda hours: timezone(timedelta(hours=hours)))
MOMENTS = st.builds(
    lambda zone, seconds, micros: datetime(1969, 12, 31, 12, tzinfo=zone)
    + timedelta(seconds=seconds, microseconds=micros),
    ZONES, st.integers(-90_000, 200_000), st.integers(-1, 1),
)  # fmt: skip
PAYMENTS = st.builds(
    Paid,
    partner=PARTNERS,
    amount=st.one_of(st.integers(-5, 5), st.integers(-(1 << 50), 1 << 50)),
    price=DECIMALS,
    fee=st.none() | DECIMALS,
    on=st.dates(date(1960, 1, 1), date(1980, 1, 1)),
    at=st.none() | MOMENTS,
    rate=st.sampled_from([0.0, -0.0, 0.5, 1e300, 3.25]),
    cash=st.booleans(),
)
EVENTS = st.one_of(
    PAYMENTS,
    PAYMENTS,
    st.builds(
        Moved, partner=PARTNERS, source=st.sampled_from("pqr"), target=st.sampled_from("pqr"),
        amount=st.integers(1, 5),
    ),
    st.builds(Visited, partner=PARTNERS),
    st.builds(Renamed, name=st.sampled_from(["n", "ñ", ""])),
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[EventStream]:
    """Streams of some aggregates as they came, each aggregate's in version order."""
    versions: dict[int, int] = {}
    streams: list[EventStream] = []
    for number in draw(st.lists(st.integers(0, 4), min_size=1, max_size=25)):
        version = versions[number] = versions.get(number, 0) + 1
        streams.append(
            EventStream(
                aggregate_type="Ledger",
                aggregate_id=f"a{number}",
                version=version,
                command_id=f"c{number % 2}-{version}",
                correlation_id="c",
                recorded_at=datetime(1970, 1, 1, tzinfo=UTC)
                + timedelta(minutes=700 * version - 900 * number, microseconds=number),
                events=tuple(draw(st.lists(EVENTS, min_size=1, max_size=3))),
            )
        )
    return streams


@contextmanager
def exporting(topic: Any, app: App) -> Iterator[Any]:
    """Gives a function that exports a topic into a folder."""

    def ranges(address: str, topics: list[str], **_known: Any) -> list[QueueRange]:
        held = topic.bodies.items()
        return [QueueRange(topics[0], queue, 0, len(messages)) for queue, messages in held]

    module = ModuleType("any_ledger")
    module.app = app  # type: ignore[attr-defined]  # as the module of a user
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setitem(sys.modules, "any_ledger", module)
        patch.setattr("headrace.spark.analysis.export.fetch_ranges", ranges)
        patch.setattr("headrace.spark.analysis.export.fetch_identity", lambda *_: "i-1")
        patch.setattr("headrace_mq.spark.reader.read_columns", topic.read)
        patch.setattr("headrace.spark.archive.flush", lambda path: None)

        def export() -> Path:
            export_events("any_ledger:app", folder, broker="127.0.0.1:1")
            return Path(folder)

        yield export


def ledger_app(projection: Projection[Any]) -> App:
    app = App("ledger")
    app.add(Ledger, projection)

    @app.upcasts(Paid, 1)
    def paid_2(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "price": "1.5"}

    return app


def as_version_1(body: bytes) -> bytes:
    """What the version of the event before the last would have stored."""
    return body.replace(b'"name":"Paid","version":2', b'"name":"Paid","version":1')


def folded(folder: Path, app: App, projection: Projection[Any]) -> dict[str, Any]:
    plan = plan_columns(projection, app.serializer.events.types.values())
    parts = parts_of(folder, TOPIC)
    groups = fold_files(plan, find_files(folder, parts, plan, app.serializer.events))
    names = [each.name for each in projection.shape.fields]
    found = [] if groups is None else rows_of(plan, groups)
    rows = [projection.shape.load(dict(zip(names, values, strict=True))) for values in found]
    assert len({row.key for row in rows}) == len(rows)
    return {row.key: repr(row) for row in rows}


def in_order_of_topic(topic: Any, app: App, ends: Sequence[dict[int, int]]) -> list[EventStream]:
    """The streams, each once, part by part and queue by queue: one moment is like another here."""
    found: dict[tuple[str, int | None], EventStream] = {}
    for begin, end in pairwise(ends):
        for queue, messages in topic.bodies.items():
            for _, _, body in messages[begin[queue] : end[queue]]:
                stream = app.serializer.decode_stream(body)
                found.setdefault((stream.aggregate_id, stream.version), stream)
    return list(found.values())


class Everything(BaseModel):
    key: str
    total: int
    worth: Decimal = Decimal("0.0")
    cheapest: Decimal | None
    dearest: Decimal | None = Decimal("1.000")
    lowest: float | None
    said: str | None = "nothing"
    began: str | None
    named: str = "?"


def everything(key: Any) -> Projection[Everything]:
    """Rules that meet the same events, values that are equal and not alike."""
    made = Projection("everything", row=Everything, key="key", key_of=key)
    made.on(
        Paid,
        total=sum_("amount"),
        worth=sum_("price"),
        cheapest=min_("price"),
        dearest=max_("fee"),
        lowest=min_("rate"),
        said=last("partner"),
        began=first("partner"),
    )
    made.on(Paid, where=field("cash"), said=last(literal("cash")), cheapest=min_("fee"))
    made.on(Happened, said=last("partner"))
    made.on(Moved, key="source", said=last("target"), began=first("target"), total=count())
    made.on(Moved, key="target", said=last("source"))
    made.on(Renamed, named=last("name"))
    return made


ANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ANY
@given(projection=projections(), streams=histories(), cut=st.integers(0, 25), old=st.booleans())
def test_columns_make_the_rows_that_python_makes(
    topic_of: Any, projection: Projection[Any], streams: list[EventStream], cut: int, old: bool
) -> None:
    compare(topic_of, projection, streams, cut, old)


@ANY
@given(
    key=st.sampled_from(
        [None, "context.aggregate_id", day("context.recorded_at"), "context.command_id"]
    ),
    streams=histories(),
    cut=st.integers(0, 25),
)
def test_equal_values_and_rules_for_the_same_event_are_kept_apart(
    topic_of: Any, key: Any, streams: list[EventStream], cut: int
) -> None:
    compare(topic_of, everything(key), streams, cut, old=False)


def compare(
    topic_of: Any, projection: Projection[Any], streams: list[EventStream], cut: int, old: bool
) -> None:
    app = ledger_app(projection)
    topic = topic_of(app.serializer)
    ends = [dict.fromkeys(topic.bodies, 0)]
    with exporting(topic, app) as export:
        # The second part begins with streams that the first one has.
        for some in (streams[:cut], [*streams[:cut][-2:], *streams[cut:]]):
            topic.publish(*some)
            if old:
                for messages in topic.bodies.values():
                    messages[::2] = [(*one, as_version_1(body)) for *one, body in messages[::2]]
            folder = export()
            ends.append({queue: len(messages) for queue, messages in topic.bodies.items()})
        expected = fold_streams(projection, {}, in_order_of_topic(topic, app, ends))
        assert folded(folder, app, projection) == {k: repr(row) for k, row in expected.items()}
        assert find_versions(folder, parts_of(folder, TOPIC)) == {
            one.aggregate_id: one.version for one in streams
        }
