"""What tests of several parts of the queue watch."""

import asyncio
from typing import Any

import pytest
import uvloop

from headrace_mq._net.link import Link
from headrace_mq.client.fetch.assigned_queues import AssignedQueues, limits_of
from headrace_mq.client.fetch.fetcher import Fetcher, GroupFilters
from headrace_mq.filters.filter import filters_of
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings


def uvloop_of_a_test() -> asyncio.AbstractEventLoop:
    """Returns a loop that a test's timeout ends.

    The timeout is an exception in the handler of a signal. uvloop calls that handler from a callback of its own and
    reports the exception as that callback's, so a test that waits for what never comes would wait for ever.
    """
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_end_the_test)
    return loop


def _end_the_test(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), pytest.fail.Exception):
        for task in asyncio.all_tasks(loop):
            task.cancel("the test took too long")
    loop.default_exception_handler(context)


class Watched:
    """AssignedQueues that are pulled for, and what was told of it."""

    def __init__(self, link: Link, clock: Any, wanted: str = "", **settings: Any) -> None:
        chosen = ConsumerSettings(**settings)
        self.shares = AssignedQueues(limits_of(chosen))
        self.news = asyncio.Event()
        self.errors: list[Exception] = []
        self.pulling = Fetcher(
            link,
            self.shares,
            settings=chosen,
            clock=clock,
            asking=GroupFilters("g", filters_of({"t": wanted})),
            on_records=self.news.set,
            on_error=self._fail,
        )

    def _fail(self, error: Exception) -> None:
        self.errors.append(error)
        self.news.set()

    def start(self, *queues: QueueRef, offset: int = 0) -> None:
        self.shares.assign([*self.shares.assigned, *queues])
        for queue in queues:
            self.shares.start(queue, offset, known=False, committed=-1)
        self.pulling.pull_soon()

    async def poll(self) -> list[Record]:
        while not (records := self.shares.deliver()):
            self.news.clear()
            await self.news.wait()
        return records

    async def offsets(self) -> list[int]:
        return [record.offset for record in await self.poll()]


@pytest.fixture
def watch() -> type[Watched]:
    """Makes shares that are pulled for through a link."""
    return Watched
