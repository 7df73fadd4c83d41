"""What is stored about readers comes back, and goes with what it belongs to."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headrace.errors import LineageError
from headrace.lineage.marks import (
    forget,
    move_back,
    move_marks,
    note_epochs,
    read_epochs,
    read_kept,
    reset_readers,
    write_marks,
)
from headrace.lineage.verdict import Kept, Mark
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.read_models import ReadModels

MARK = Mark(next_offset=5, message_id="m", stream=("a", "c"), epoch=3)
BARE = Mark(next_offset=0, message_id="")


@pytest.fixture
async def models(totals: Any) -> AsyncIterator[ReadModels]:
    models = ReadModels("sqlite://")
    await models.ensure(totals)
    yield models
    await models.aclose()


async def kept(models: ReadModels, *names: str) -> Any:
    return await models.transact(partial(read_kept, names=names, topic="shop.events"))


async def write(models: ReadModels, readers: Any, topic: str = "t1") -> None:
    await models.transact(partial(write_marks, readers=readers, topic=topic, store="s1"))


async def test_a_new_reader_has_no_marks(models: ReadModels) -> None:
    assert await kept(models, "totals", "handlers:x") == (
        {("totals", 1): Kept(), ("handlers:x", 0): Kept()},
        {"totals": 1},
    )


async def test_marks_come_back_with_the_offsets_of_the_live_generation(
    models: ReadModels, totals: Any
) -> None:
    await write(models, {("totals", 1): {0: MARK, 1: BARE}, ("totals", 2): {2: MARK}})
    async with models.begin() as connection:
        offsets = {("shop.events", 0): 7, ("another", 1): 3}
        await write_offsets(connection, models.target(totals, 1), offsets)
    found, _ = await kept(models, "totals")
    assert found == {
        ("totals", 1): Kept(topic="t1", store="s1", marks={0: MARK, 1: BARE}, offsets={0: 7})
    }
    await write(models, {("totals", 1): {1: MARK}}, topic="t2")
    found, _ = await kept(models, "totals")
    assert found["totals", 1].topic == "t2"
    assert found["totals", 1].marks == {0: MARK, 1: MARK}


async def test_a_reset_reader_has_neither_offsets_nor_marks(
    models: ReadModels, totals: Any
) -> None:
    await write(models, {("totals", 1): {0: MARK}, ("handlers:x", 0): {0: MARK}})
    async with models.begin() as connection:
        await write_offsets(connection, models.target(totals, 1), {("shop.events", 0): 7})
        # Code of another version has read the same topic.
        await write_offsets(connection, models.target(totals, 2), {("shop.events", 0): 5})
    await models.transact(partial(reset_readers, readers=[("totals", 1)]))
    found, _ = await kept(models, "totals", "handlers:x")
    assert found["totals", 1] == Kept()
    assert await models.offsets("totals", 2) == {}
    assert found["handlers:x", 0].marks == {0: MARK}
    await models.transact(partial(forget, names=["handlers:x"]))
    found, _ = await kept(models, "handlers:x")
    assert found == {("handlers:x", 0): Kept()}


async def test_marks_are_deleted_with_their_generation(models: ReadModels, totals: Any) -> None:
    generation = await models.begin_shadow(totals, "me")
    await write(models, {("totals", generation): {0: MARK}})
    await models.abandon_shadow("totals", generation, "me")
    again = await models.begin_shadow(totals, "me")
    assert again == generation
    await models.switch(totals, again, "me")
    found, _ = await kept(models, "totals")
    assert found == {("totals", again): Kept()}


async def test_a_reader_of_lost_messages_goes_back_in_the_queues_that_lost_some(
    models: ReadModels, totals: Any
) -> None:
    marks = {0: MARK, 1: replace(MARK, next_offset=4), 2: MARK}
    await write(models, {("totals", 1): marks, ("handlers:x", 0): {0: MARK}})
    async with models.begin() as connection:
        offsets = {("shop.events", number): 7 for number in range(3)} | {("another", 0): 7}
        await write_offsets(connection, models.target(totals, 1), offsets)
        await write_offsets(connection, models.target(totals, 2), {("shop.events", 0): 3})
    back = {("totals", 1): {0: 4, 1: 4}}
    await models.transact(partial(move_back, topic="shop.events", readers=back))
    found, _ = await kept(models, "totals", "handlers:x")
    assert found["totals", 1].offsets == {0: 4, 1: 4, 2: 7}
    assert found["totals", 1].marks == {1: marks[1], 2: MARK}
    assert found["handlers:x", 0].marks == {0: MARK}
    assert await models.offsets("totals", 1) == {
        ("shop.events", 0): 4, ("shop.events", 1): 4, ("shop.events", 2): 7, ("another", 0): 7,
    }  # fmt: skip
    assert await models.offsets("totals", 2) == {("shop.events", 0): 3}


async def test_epochs_are_noted_without_a_topic_and_next_to_marks_that_are_there(
    models: ReadModels,
) -> None:
    reader = ("totals", 1)
    await models.transact(partial(note_epochs, reader=reader, epochs={0: 2, 1: 2}))
    assert await models.transact(partial(read_epochs, reader=reader)) == {0: 2, 1: 2}
    found, _ = await kept(models, "totals")
    assert (found[reader].topic, found[reader].store) == (None, None)
    await write(models, {reader: {0: MARK}})
    await models.transact(partial(note_epochs, reader=reader, epochs={0: 7}))
    found, _ = await kept(models, "totals")
    assert found[reader].marks == {0: replace(MARK, epoch=7), 1: replace(BARE, epoch=2)}
    assert await models.transact(partial(read_epochs, reader=("totals", 2))) == {}


async def move(models: ReadModels, shifts: dict[int, int]) -> list[str]:
    return await models.transact(
        partial(move_marks, topic="shop.events", source="t1", target="t2", shifts=shifts)
    )


async def test_readers_go_on_at_a_copy_of_the_topic_once(models: ReadModels, totals: Any) -> None:
    await write(models, {("totals", 1): {0: MARK, 1: MARK}, ("handlers:x", 0): {}})
    await write(models, {("handlers:elsewhere", 0): {0: MARK}}, topic="t9")
    async with models.begin() as connection:
        offsets = {("shop.events", 0): 7, ("shop.events", 1): 9, ("another", 0): 3}
        await write_offsets(connection, models.target(totals, 1), offsets)
    assert await move(models, {0: 3, 1: -2}) == ["handlers:x", "totals"]
    found, _ = await kept(models, "totals", "handlers:x", "handlers:elsewhere")
    moved = Kept(
        topic="t2",
        store="s1",
        # The brokers of the copy count epochs of their own.
        marks={
            0: replace(MARK, next_offset=2, epoch=0),
            1: replace(MARK, next_offset=7, epoch=0),
        },
        offsets={0: 4, 1: 11},
    )
    assert found["totals", 1] == moved
    assert found["handlers:x", 0].topic == "t2"
    assert found["handlers:elsewhere", 0] == Kept(topic="t9", store="s1", marks={0: MARK})
    assert await move(models, {0: 3, 1: -2}) == []
    assert (await kept(models, "totals"))[0]["totals", 1] == moved


async def test_a_reader_behind_what_the_copy_has_is_refused(
    models: ReadModels, totals: Any
) -> None:
    await write(models, {("totals", 1): {0: MARK}})
    async with models.begin() as connection:
        await write_offsets(connection, models.target(totals, 1), {("shop.events", 0): 7})
    with pytest.raises(LineageError, match="totals has not read messages of queue 0"):
        await move(models, {0: 8})
    assert (await kept(models, "totals"))[0]["totals", 1].offsets == {0: 7}


async def test_a_mark_of_a_message_that_the_copy_lacks_goes(models: ReadModels) -> None:
    state = replace(BARE, message_id="filling")
    await write(models, {("handlers:x", 0): {0: MARK}, ("topic:shop.events", 0): {0: state}})
    await move(models, {0: MARK.next_offset})
    found, _ = await kept(models, "handlers:x", "topic:shop.events")
    assert found["handlers:x", 0].marks == {}
    assert found["topic:shop.events", 0] == Kept(topic="t2", store="s1", marks={0: state})
