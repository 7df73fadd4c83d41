"""What is looked at of an application: its databases as they are, its topics, its letters, its projections."""

import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from headrace import Settings
from headrace.cli.doctor import application_look as subject
from headrace.cli.doctor.broker_rules import DeclaredTopic
from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import downgrade, upgrade
from headrace.stores.database.tables import event_streams
from headrace_mq.testing.embedded import broker

SHOP = """
from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext, Projection
from headrace import applies
from pydantic import BaseModel


class Receive(Command):
    product_id: AggregateId
    pieces: int


class Count(Command, topic="counting"):
    product_id: AggregateId


class Received(DomainEvent):
    pieces: int


class Product(Aggregate):
    @applies
    def _received(self, event: Received) -> None:
        pass


class Row(BaseModel):
    product_id: str
    pieces: int


stock = Projection("stock", row=Row, key="product_id")


@stock.fold
def received(row: Row | None, event: Received, context: EventContext) -> Row:
    if event.pieces < 0:
        raise ValueError("less than nothing")
    return Row(product_id=context.aggregate_id, pieces=event.pieces)


app = App("shop")
app.add(Product, stock)


@app.handles
async def receive(command: Receive, context: CommandContext) -> None:
    if command.pieces == 0:
        raise RuntimeError("no pieces")
    product = Product(command.product_id)
    product.record(Received(pieces=command.pieces))
    context.add(product)


@app.handles
async def count(command: Count, context: CommandContext) -> None:
    pass
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "doctors_shop.py").write_text(SHOP, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("doctors_shop")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("doctors_shop", None)


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[Settings]:
    async with broker() as address:
        yield Settings(
            broker=address,
            event_store=f"sqlite:///{tmp_path}/events.db",
            read_models=f"sqlite:///{tmp_path}/read.db",
            error_retries_max=0,
        )


def test_the_topics_of_an_application_are_those_of_its_start(shop: Any) -> None:
    assert subject.declared_topics(shop.app, Settings(command_queues=2, event_queues=3)) == [
        DeclaredTopic("shop.commands", 2, "transient"),
        DeclaredTopic("shop.commands.counting", 2, "transient"),
        DeclaredTopic("shop.events", 3, "forever"),
        DeclaredTopic("shop.messages", 3, "transient"),
    ]
    with pytest.raises(DefinitionError, match="no topic 'other'"):
        subject.declared_topics(shop.app, Settings(command_topics=("other",)))


async def test_a_database_says_its_size_or_what_to_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/events.db"
    with pytest.raises(SchemaOutOfDate, match="there is no database"):
        await subject.look_at_database("it", url)
    assert not (tmp_path / "new").exists()
    await upgrade(url)
    assert (await subject.look_at_database("it", url)).size > 10_000
    await downgrade(url, "-1")
    with pytest.raises(SchemaOutOfDate, match="behind this version"):
        await subject.look_at_database("it", url)


@pytest.mark.parametrize("url", ["memory://", "sqlite://", "sqlite:///:memory:"])
async def test_a_database_in_memory_is_one(url: str) -> None:
    assert (await subject.look_at_database("it", url)).in_memory


async def test_a_database_of_a_server_says_its_size_and_has_no_disk_here(
    postgres_database: str,
) -> None:
    await upgrade(postgres_database)
    assert (await subject.look_at_database("it", postgres_database)).size > 1_000_000
    assert await subject.look_at_disk("it", postgres_database) is None
    with pytest.raises(SchemaOutOfDate, match="archive upgrade"):
        await subject.look_at_database("it", postgres_database, archive=True)


async def test_the_file_of_an_event_store_grows_by_its_size_over_its_age(
    shop: Any, settings: Settings
) -> None:
    async with shop.app.run(settings) as running:
        await running.bus.execute(shop.Receive(product_id="tea", pieces=1))
    young = await subject.look_at_disk("it", settings.event_store)
    assert young is not None
    assert young.grows is None
    assert 0 < young.free_bytes <= young.disk_bytes
    engine = create_engine(settings.event_store)
    async with engine.begin() as connection:
        before = datetime.now(UTC) - timedelta(days=2)
        await connection.execute(update(event_streams).values(recorded_at=before))
    await engine.dispose()
    old = await subject.look_at_disk("it", settings.event_store)
    size = (await subject.look_at_database("it", settings.event_store)).size
    assert old is not None
    assert old.grows == pytest.approx(size / 2, rel=0.01)


async def test_parked_letters_are_counted_by_processor(shop: Any, settings: Settings) -> None:
    async with shop.app.run(settings) as running:
        await running.bus.execute(shop.Receive(product_id="tea", pieces=0))
        result = await running.bus.execute(shop.Receive(product_id="milk", pieces=-1))
        with pytest.raises(Exception, match="parked"):
            await running.seen(shop.stock, result)
    found = {each.processor: each.letters for each in await subject.look_at_parked(settings)}
    assert found == {"commands": 1, "projection:stock": 1}


async def test_projections_stand_where_they_are_or_have_no_tables(
    shop: Any, settings: Settings
) -> None:
    await upgrade(settings.read_models)
    standing = await subject.look_at_projections(shop.app, settings)
    assert standing == ((), ["stock"])
    async with shop.app.run(settings) as running:
        result = await running.bus.execute(shop.Receive(product_id="tea", pieces=1))
        await running.seen(shop.stock, result)
    standing = await subject.look_at_projections(shop.app, settings)
    (lag,) = standing.lags
    assert (lag.projection, lag.messages, standing.without_tables) == ("stock", 0, [])
