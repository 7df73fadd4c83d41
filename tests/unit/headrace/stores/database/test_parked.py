"""What a reader of events has parked: counted, taken up once, and nothing of anybody else's."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from headrace.stores.database.parked import (
    ERROR_CHARACTERS_MAX,
    Letter,
    ParkedStore,
    read_live_letters,
    read_parked_counts,
)
from headrace.stores.database.tables import projections

NOW = datetime(2026, 1, 31, tzinfo=UTC)

Transact = Callable[..., Awaitable[Any]]


@pytest.fixture
def transact(read_models: Any) -> Transact:
    async def run(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await read_models.transact(
            lambda connection: partial(work, connection)(*arguments, **named)
        )

    return run


@pytest.fixture
def mail() -> ParkedStore:
    return ParkedStore("handlers:mail")


def failed(text: str = "no") -> ValueError:
    return ValueError(text)


async def test_parked_rows_are_read_back_whole_the_oldest_first(
    transact: Transact, mail: ParkedStore
) -> None:
    await transact(mail.add, "b", failed(), now=NOW, place=("shop.events", 1, 42), version=7)
    earlier = NOW - timedelta(seconds=1)
    await transact(mail.add, "a", failed(), now=earlier, place=None, sentence="a sentence")
    first, second = await transact(mail.read)
    assert first == Letter(
        aggregate_id="a",
        version=0,
        queue=None,
        offset=None,
        parked_at=earlier,
        held=1,
        retries=0,
        error="a sentence",
        error_name="ValueError",
        traceback=first.traceback,
    )
    assert first.traceback.endswith("ValueError: no")
    assert (second.aggregate_id, second.version, second.error) == ("b", 7, "no")
    assert (second.queue, second.offset) == (("shop.events", 1), 42)
    assert await transact(mail.read, "b") == [second]
    assert await transact(mail.find, "b") == second
    assert await transact(mail.find, "c") is None
    assert (await transact(mail.version, "b"), await transact(mail.version, "a")) == (7, None)


async def test_waiting_messages_are_counted_and_a_further_failure_is_noted(
    transact: Transact, mail: ParkedStore
) -> None:
    await transact(mail.add, "a", failed(), now=NOW, place=None)
    assert await transact(mail.hold, "a")
    assert await transact(mail.hold, "a", 3)
    assert not await transact(mail.hold, "b")
    await transact(mail.fail, "a", KeyError("still"), held=4)
    letter = await transact(mail.find, "a")
    assert (letter.held, letter.retries, letter.error_name) == (4, 1, "KeyError")
    assert letter.parked_at == NOW


async def test_a_parked_row_ends_unless_a_message_came_for_it_meanwhile(
    transact: Transact, mail: ParkedStore
) -> None:
    await transact(mail.add, "a", failed(), now=NOW, place=None)
    letter = await transact(mail.find, "a")
    await transact(mail.hold, "a")
    assert not await transact(mail.release, letter)
    assert await transact(mail.release, await transact(mail.find, "a"))
    assert await transact(mail.read) == []


async def test_readers_and_generations_know_nothing_of_each_other(
    transact: Transact, mail: ParkedStore
) -> None:
    stores = [mail, ParkedStore("sales", 1), ParkedStore("sales", 2)]
    for store in stores:
        await transact(store.add, "a", failed(), now=NOW, place=None)
        await transact(store.add, f"{store.name}'s", failed(), now=NOW, place=None)
    assert await transact(stores[1].hold, "a")
    (letter,) = await transact(stores[1].read, "a")
    assert await transact(stores[1].release, letter)
    await transact(mail.fail, "a", failed("again"))
    assert [await transact(each.count) for each in stores] == [2, 1, 2]
    assert [await transact(each.among, ["a", "b"]) for each in stores] == [{"a"}, set(), {"a"}]
    assert await transact(mail.among, []) == set()
    assert (await transact(stores[2].find, "a")).retries == 0


async def test_of_a_projection_only_the_live_generation_is_listed_and_counted(
    transact: Transact, mail: ParkedStore
) -> None:
    await transact(mail.add, "a", failed(), now=NOW, place=None)
    for generation in (1, 2):
        store = ParkedStore("sales", generation)
        await transact(store.add, f"of {generation}", failed(), now=NOW, place=None)
    live = projections.insert().values(name="sales", generation=2, fingerprint="f")
    await transact(lambda connection: connection.execute(live))
    found = await transact(read_live_letters)
    assert [(name, letter.aggregate_id) for name, letter in found] == [
        ("handlers:mail", "a"),
        ("sales", "of 2"),
    ]
    assert await transact(read_parked_counts) == [("handlers:mail", 1, NOW), ("sales", 1, NOW)]


async def test_a_sentence_is_one_that_every_database_keeps_and_has_an_end(
    transact: Transact, mail: ParkedStore
) -> None:
    await transact(mail.add, "a", failed("\x00 \udc80" + "x" * 9_000), now=NOW, place=None)
    letter = await transact(mail.find, "a")
    assert len(letter.error) == ERROR_CHARACTERS_MAX
    assert letter.error.startswith("\N{REPLACEMENT CHARACTER} ?x")
