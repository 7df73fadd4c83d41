"""Changes that take long go on, one of a kind at a time, and tell how far they are."""

import asyncio
from typing import Any

import pytest

from headrace.console.changes import BegunChange, BegunChanges
from headrace.console.problems import Mistake
from headrace.console.sessions import Session
from headrace.console.verbs.verb import Consequence, Given, Tell, Verb, VerbField
from headrace_mq import AdminClient

SESSION = Session("ann", AdminClient("127.0.0.1:1"), None, 0)


class Slow:
    """A verb that ends when the test lets it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.verb = Verb("tea make", self.run, (VerbField("pot"),), self.ahead, slow=self.slowly)

    async def run(self, _: AdminClient, given: Given) -> Any:
        return f"tea in {given['pot']}"

    async def slowly(self, admin: AdminClient, given: Given, tell: Tell) -> Any:
        tell("The water is hot.")
        await self.go_on.wait()
        return await self.run(admin, given)

    async def ahead(self, _: AdminClient, __: Given) -> Consequence:
        return Consequence(("Tea is made.",))


async def start(changes: BegunChanges, slow: Slow, pot: str) -> BegunChange:
    made = changes.start(SESSION, slow.verb, {"pot": pot}, "/")
    await asyncio.sleep(0)
    return made


async def test_a_change_tells_how_far_it_is_and_then_what_was_done() -> None:
    changes, slow = BegunChanges(9, clock=lambda: 7.0), Slow()
    made = await start(changes, slow, "red")
    assert made.under_way
    assert made.so_far == "The water is hot."
    assert changes.find(SESSION, made.number) is made
    assert changes.seconds(made) == 0
    assert not await made.ends_within(0)
    slow.go_on.set()
    assert await made.ends_within(10_000)
    assert made.result() == "tea in red"


async def test_the_same_change_does_not_run_twice_at_once() -> None:
    changes, slow = BegunChanges(9), Slow()
    await start(changes, slow, "red")
    await start(changes, slow, "blue")
    with pytest.raises(Mistake, match="goes on already"):
        await start(changes, slow, "red")
    changes.stop()


async def test_no_more_changes_go_on_than_the_limit_allows() -> None:
    changes, slow = BegunChanges(1), Slow()
    first = await start(changes, slow, "red")
    with pytest.raises(Mistake, match="changes_max"):
        await start(changes, slow, "blue")
    slow.go_on.set()
    assert await first.ends_within(10_000)
    await start(changes, slow, "blue")


async def test_a_change_of_another_user_is_not_shown() -> None:
    changes, slow = BegunChanges(9), Slow()
    made = await start(changes, slow, "red")
    other = Session("ben", AdminClient("127.0.0.1:1"), None, 0)
    for session, number in ((other, made.number), (SESSION, made.number + 1)):
        with pytest.raises(Mistake, match="you have no change"):
            changes.find(session, number)
    changes.stop()


async def test_a_console_that_stops_says_so_of_what_went_on() -> None:
    changes, slow = BegunChanges(9), Slow()
    made = await start(changes, slow, "red")
    changes.stop()
    assert await made.ends_within(10_000)
    with pytest.raises(Mistake, match="the console stopped"):
        made.result()


async def test_the_last_hundred_changes_are_remembered() -> None:
    changes, slow = BegunChanges(9), Slow()
    slow.go_on.set()
    for number in range(110):
        await (await start(changes, slow, str(number))).ends_within(10_000)
    with pytest.raises(Mistake):
        changes.find(SESSION, 1)
    assert changes.find(SESSION, 110).result() == "tea in 109"


async def test_a_change_ends_with_its_session_and_with_the_program_that_waits() -> None:
    changes, slow = BegunChanges(9), Slow()
    session = Session("ann", AdminClient("127.0.0.1:1"), None, 0)
    made = changes.start(session, slow.verb, {"pot": "red"}, "/")
    await session.aclose()
    with pytest.raises(Mistake, match="you signed out"):
        await made.end()
    other = changes.start(SESSION, slow.verb, {"pot": "blue"}, "/")
    waits = asyncio.create_task(other.end())
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait({waits})
    assert await other.ends_within(10_000)
    assert not SESSION.busy
