"""A reader's transactions: tried again until one is committed, and parked as soon as there is room."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from headrace.handlers.progress import HandlerProgress
from headrace.handlers.transactions import ReaderTransactions
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.stores.database.parked import Letter
from headrace.subscriptions.reader import Reader
from headrace.subscriptions.status import ReaderState
from headrace.transports.base import Incoming
from headrace.transports.local import LocalTransport

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def reader() -> Reader:
    settings = Settings(retry_ms_min=1, retry_ms_max=1)
    return Reader(LocalTransport(), group="g", topic="shop.events", settings=settings, about={})


async def test_a_transaction_is_retried_until_it_is_committed_and_writes_nothing_before(
    read_models: ReadModels,
) -> None:
    reading, progress, outages = reader(), HandlerProgress("mail"), [OSError("away")]
    states = []

    def work(connection: Connection) -> str:
        progress.advance(connection, {"a": 1, "b": 1} if outages else {"a": 1})
        if outages:
            raise outages.pop()
        states.append(reading.status.state)
        return "done"

    assert await ReaderTransactions(reading, read_models).run(work, "store versions") == "done"
    read = partial(progress.read, aggregate_ids=["a", "b"])
    assert await read_models.transact(read) == ({"a": 1}, set())
    assert (states, reading.status.state) == ([ReaderState.RETRYING], ReaderState.RUNNING)


async def test_a_message_is_parked_once_there_is_room(read_models: ReadModels) -> None:
    parked, error = HandlerProgress("mail").parked, ValueError("no")
    add = partial(parked.add, error=error, now=NOW, place=None)
    await read_models.transact(partial(add, aggregate_id="first"))
    looks: list[int] = []

    def park(connection: Connection) -> bool:
        looks.append(parked.count(connection))
        if len(looks) == 2:
            letter: Any = parked.find(connection, "first")
            assert isinstance(letter, Letter)
            parked.release(connection, letter)
        if parked.count(connection):
            return False
        add(connection, aggregate_id="second")
        return True

    message = Incoming(("shop.events", 0), 1, "second", "", {}, b"")
    await ReaderTransactions(reader(), read_models).park(message, error, park)
    assert looks == [1, 1]
    assert await read_models.transact(partial(parked.among, aggregate_ids=["first", "second"])) == {
        "second"
    }
