"""Rebuilds meet: they wait for each other, but for none that has left, and ask once."""

import asyncio

import pytest

from headrace.errors import ProjectionError
from headrace.spark.several.one_pass import OnePass


async def test_the_others_do_not_wait_for_one_that_has_left() -> None:
    shared = OnePass(["a", "b", "c"])
    turns: list[str] = []

    async def take(name: str) -> None:
        async with shared.turn(name):
            turns.append(name)

    waiting = [asyncio.create_task(take(name)) for name in "ab"]
    await asyncio.sleep(0)
    assert turns == []
    shared.leave("c")
    await asyncio.gather(*waiting)
    assert turns == ["a", "b"]


async def test_a_question_that_failed_is_asked_again_by_the_next() -> None:
    shared = OnePass(["a", "b"])

    async def answer() -> int:
        return 3

    async def fail() -> int:
        raise ProjectionError("the broker is away")

    with pytest.raises(ProjectionError):
        await shared.once("slices", fail)
    assert [await shared.once("slices", each) for each in (answer, fail)] == [3, 3]
