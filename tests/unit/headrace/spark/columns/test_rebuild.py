"""A shadow begins with what files make, in one transaction, and a rebuild goes on from there."""

from collections.abc import AsyncIterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.errors import ProjectionError
from headrace.folds import count, first, last, literal, min_, sum_
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.spark.columns import rebuild as module
from headrace.spark.columns.rebuild import rebuild, rebuild_together, unsuited
from headrace.stores.database.schema import upgrade
from headrace.transports.base import TopicLineage

BROKER = "127.0.0.1:1"


class Sum(BaseModel):
    account_id: str
    total: int
    bookings: int = 100
    partner: str | None = None
    worth: Decimal
    booked_at: datetime | None
    booked_on: date | None
    open: bool = False
    rate: float | None
    never: Decimal | None = None


@pytest.fixture
def sums(ledger: Any) -> Projection[Sum]:
    made = Projection("sums", row=Sum, key="account_id")
    made.on(
        ledger.Booked,
        total=sum_("amount"),
        bookings=count(),
        partner=last("partner"),
        worth=sum_(literal(Decimal("0.50"))),
        booked_at=last("context.recorded_at"),
        booked_on=first(literal(date(1969, 12, 31))),
        open=last(literal(value=True)),
        rate=min_(literal(0.25)),
    )
    ledger.app.add(made)
    return made


@pytest.fixture
def book(ledger: Any, topic: Any) -> Any:
    """Puts a booking of each of three accounts into the topic."""

    def put(version: int) -> None:
        for key in "abc":
            event = ledger.Booked(partner=f"p{version}", amount=version)
            topic.publish(ledger.stream(key, version, event, event))

    return put


@pytest.fixture
async def read_models(database_url: str) -> AsyncIterator[ReadModels]:
    await upgrade(database_url)
    opened = ReadModels(database_url)
    yield opened
    await opened.aclose()


@pytest.fixture(autouse=True)
def reading_the_tail(topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of rebuilds is the same lists."""

    async def ranges(self: EventTopic) -> dict[tuple[str, int], tuple[int, int]]:
        return {("ledger.events", q): (0, len(held)) for q, held in topic.bodies.items()}

    async def lineage(self: EventTopic, known: Any, *, patient: bool) -> TopicLineage:
        return TopicLineage(identity="", ranges={})

    def read(broker: str, queue: Any, start: int, end: int) -> Any:
        return topic.read(broker, type(topic.slices()[0])(queue=queue, start=start, end=end))

    monkeypatch.setattr(EventTopic, "ranges", ranges)
    monkeypatch.setattr(EventTopic, "lineage", lineage)
    monkeypatch.setattr("headrace.rebuild.event_topic._read", read)


async def rows(read_models: ReadModels, projection: Any, generation: int) -> dict[str, Any]:
    reader = read_models.reader(projection, generation=generation)
    return {row.account_id: row async for row in reader.rows()}


async def test_rows_versions_and_offsets_are_there_and_the_tail_is_folded_onto_them(
    ledger: Any, topic: Any, sums: Any, book: Any, export: Any, read_models: Any, database_url: str
) -> None:
    book(1)
    export()
    book(2)
    folder = export()
    book(3)
    report = await rebuild(
        ledger.path, "sums", export=folder, broker=BROKER, read_models_url=database_url,
        verify=False, switch=False,
    )  # fmt: skip
    found = await rows(read_models, sums, report.generation)
    expected = {
        key: Sum(
            account_id=key, total=12, bookings=106, partner="p3", worth=Decimal("3.00"),
            booked_at=ledger.now, booked_on=date(1969, 12, 31), open=True, rate=0.25,
        )
        for key in "abc"
    }  # fmt: skip
    assert {key: repr(row) for key, row in found.items()} == {
        key: repr(row) for key, row in expected.items()
    }
    assert (report.archived, report.events, report.rows, report.start) == (6, 18, 3, "zero")
    assert sum(report.messages.values()) == 9
    offsets = await read_models.offsets("sums", report.generation)
    assert offsets == {("ledger.events", q): len(held) for q, held in topic.bodies.items()}
    async with read_models.begin() as connection:
        versions = await connection.exec_driver_sql(
            "select aggregate_id, version from projection_versions where generation ="
            f" {report.generation} order by 1"
        )
        assert [tuple(each) for each in versions] == [("a", 3), ("b", 3), ("c", 3)]


async def test_what_is_not_declared_is_refused_before_anything_is_begun(
    ledger: Any, book: Any, sums: Any, export: Any, database_url: str, read_models: Any
) -> None:
    choices: dict[str, Any] = {"broker": BROKER, "read_models_url": database_url}
    with pytest.raises(ProjectionError, match="holds no exported events; write some with"):
        await rebuild(ledger.path, "sums", export=Path("nowhere"), **choices)
    book(1)
    folder = export()
    sentence = "projection accounts has folds that are Python functions.*use --engine replay or"
    with pytest.raises(ProjectionError, match=sentence):
        await rebuild_together(ledger.path, ["sums", "accounts"], export=folder, **choices)
    await read_models.ensure(sums)
    assert (await read_models.state("sums")).rebuild_generation is None


def test_what_files_say_of_themselves_tells_whether_they_can_be_folded_in_columns(
    ledger: Any, sums: Any, book: Any, export: Any
) -> None:
    book(1)
    folder = export()
    assert unsuited(ledger.app, ["sums"], folder, vouched=False) == ""
    assert "without an event store that vouches" in unsuited(
        ledger.app, ["sums"], folder, vouched=True
    )
    assert unsuited(ledger.app, ["sums", "accounts"], folder, vouched=False) == (
        "projection accounts has folds that are Python functions, so it is folded event by event"
    )
    assert "holds no exported events" in unsuited(
        ledger.app, ["sums"], folder / "events", vouched=False
    )


async def test_a_shadow_that_was_taken_away_meanwhile_is_left_alone(
    ledger: Any, sums: Any, book: Any, export: Any, database_url: str, read_models: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    book(1)
    folder, lay = export(), module._lay
    taken: list[int] = []

    async def late(models: ReadModels, shadow: Any, made: Any) -> Any:
        await models.abandon_shadow("sums", shadow.generation, shadow.owner)
        taken.append(shadow.generation)
        return await lay(models, shadow, made)

    monkeypatch.setattr(module, "_lay", late)
    with pytest.raises(ProjectionError, match=r"is no longer the shadow that .* builds; run the"):
        await rebuild(
            ledger.path, "sums", export=folder, broker=BROKER, read_models_url=database_url
        )
    assert taken == [2]
