"""Turns: order within a key, none between keys, bounded, and no error is lost."""

import asyncio

import pytest

from headrace._runtime.turns import Turns


class Work:
    """Notes what is handled; waits where told to."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: dict[str, asyncio.Event] = {}

    def hold(self, item: str) -> None:
        self.gates[item], self.begun[item] = asyncio.Event(), asyncio.Event()

    async def handle(self, item: str) -> None:
        if item in self.gates:
            self.begun[item].set()
            await self.gates[item].wait()
        self.done.append(item)

    def turns(self, in_flight_max: int = 10) -> Turns[str]:
        return Turns(self.handle, in_flight_max=in_flight_max, name="work")


async def test_items_of_a_key_keep_their_order_and_those_of_others_do_not_wait() -> None:
    work = Work()
    work.hold("a1")
    async with work.turns() as turns:
        for item in ("a1", "a2", "b1", "a3"):
            await turns.put(item[0], item)
        await work.begun["a1"].wait()
        while "b1" not in work.done:
            await asyncio.sleep(0)
        assert work.done == ["b1"]
        assert ("a" in turns, "b" in turns) == (True, False)
        work.gates["a1"].set()
    assert work.done == ["b1", "a1", "a2", "a3"]


async def test_leaving_waits_for_everything_that_was_put() -> None:
    work = Work()
    async with work.turns() as turns:
        for number in range(5):
            await turns.put(str(number % 2), str(number))
    assert sorted(work.done) == list("01234")


async def test_an_item_waits_for_room() -> None:
    work = Work()
    work.hold("a1")
    async with work.turns(in_flight_max=2) as turns:
        await turns.put("a", "a1")
        await turns.put("a", "a2")
        waiting = asyncio.ensure_future(turns.put("b", "b1"))
        await work.begun["a1"].wait()
        assert not waiting.done()
        work.gates["a1"].set()
        await waiting
    assert sorted(work.done) == ["a1", "a2", "b1"]


async def test_an_error_cancels_what_is_under_way_and_is_raised() -> None:
    work = Work()
    work.hold("a1")

    async def handle(item: str) -> None:
        await work.handle(item)
        if item == "b1":
            raise RuntimeError("no")

    async def work_on() -> None:
        async with Turns(handle, in_flight_max=10, name="work") as turns:
            await turns.put("a", "a1")
            await turns.put("b", "b1")

    with pytest.raises(ExceptionGroup, match="unhandled errors") as raised:
        await work_on()
    assert raised.group_contains(RuntimeError, match="no")
    assert work.done == ["b1"]
