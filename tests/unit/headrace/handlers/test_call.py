"""A stream through its handlers: events in order, priorities in order, equals at once."""

import asyncio
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

from headrace._runtime import handler_deadline
from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.errors import EventHandlerError
from headrace.handlers.call import call_all, call_once
from headrace.handlers.event_handlers import EventHandlers
from headrace.subjects.personal import Personal


class Calls:
    """Handlers that note when they begin and end, and wait where told to."""

    def __init__(self, domain: Any) -> None:
        self.domain = domain
        self.handlers = EventHandlers("noting")
        self.notes: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.errors: dict[str, Exception] = {}

    def add(self, name: str, priority: int = 0) -> None:
        async def handler(event: self.domain.Added, context: EventContext) -> None:  # type: ignore[name-defined]  # known when the test runs
            self.notes.append(f"{name} {event.amount} begins")
            if name in self.gates:
                await self.gates[name].wait()
            if name in self.errors:
                raise self.errors[name]
            self.notes.append(f"{name} {event.amount} ends")

        self.handlers.add(handler, priority=priority)

    async def until(self, note: str) -> None:
        while note not in self.notes:
            await asyncio.sleep(0)


@pytest.fixture
def calls(domain: Any) -> Calls:
    return Calls(domain)


async def test_handlers_of_one_priority_run_at_once_before_those_of_the_next(
    calls: Calls, domain: Any
) -> None:
    calls.gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    calls.add("last", priority=5)
    calls.add("a")
    calls.add("b")
    stream = domain.stream("x", 1, domain.Added(amount=7))
    task = asyncio.create_task(call_all(calls.handlers, stream, call_once))
    await calls.until("b 7 begins")
    assert calls.notes == ["a 7 begins", "b 7 begins"]
    calls.gates["b"].set()
    await calls.until("b 7 ends")
    assert "last 7 begins" not in calls.notes
    calls.gates["a"].set()
    await task
    assert calls.notes[-2:] == ["last 7 begins", "last 7 ends"]


async def test_the_events_of_a_stream_come_one_after_another(calls: Calls, domain: Any) -> None:
    calls.add("a")
    calls.add("z", priority=1)
    stream = domain.stream("x", 1, domain.Added(amount=1), domain.Cleared(), domain.Added(amount=2))
    await call_all(calls.handlers, stream, call_once)
    assert calls.notes == [
        f"{name} {amount} {what}"
        for amount in (1, 2)
        for name in "az"
        for what in ("begins", "ends")
    ]


async def test_a_failure_is_raised_after_the_other_handlers_have_ended(
    calls: Calls, domain: Any
) -> None:
    calls.errors["a"] = ValueError("not a")
    calls.gates["b"] = asyncio.Event()
    calls.add("a")
    calls.add("b")
    calls.add("next", priority=1)
    stream = domain.stream("x", 3, domain.Added(amount=1), domain.Added(amount=2))
    task = asyncio.create_task(call_all(calls.handlers, stream, call_once))
    await calls.until("b 1 begins")
    assert not task.done()
    calls.gates["b"].set()
    with pytest.raises(EventHandlerError, match=r"handler failed at Added x/3/1: ValueError\('not"):
        await task
    assert calls.notes == ["a 1 begins", "b 1 begins", "b 1 ends"]


async def test_each_handler_gets_attempts_of_its_own(calls: Calls, domain: Any) -> None:
    calls.errors["a"] = ValueError("not a")
    calls.add("a")
    calls.add("b")

    async def three_times(_handler: Any, call: Any) -> None:
        for attempt in (1, 2, 3):
            if attempt == 3:
                calls.errors.clear()
            with suppress(ValueError):
                await call()
                return

    await call_all(calls.handlers, domain.stream("x", 1), three_times)
    assert calls.notes.count("a 1 begins") == 3
    assert calls.notes.count("b 1 ends") == 1


async def test_a_handler_that_hangs_is_ended_and_has_failed(
    calls: Calls, domain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_deadline, "HANDLER_MS_MAX", 1)
    calls.gates = {"a": asyncio.Event()}
    calls.add("a")
    stream = domain.stream("x", 1, domain.Added(amount=7))
    with pytest.raises(EventHandlerError, match="ran for more than"):
        await call_all(calls.handlers, stream, call_once)
    assert calls.notes == ["a 7 begins"]


async def test_a_timeout_within_a_handler_is_its_own_error(calls: Calls, domain: Any) -> None:
    calls.errors = {"a": TimeoutError("the printer")}
    calls.add("a")
    stream = domain.stream("x", 1, domain.Added(amount=7))
    with pytest.raises(EventHandlerError, match="printer") as raised:
        await call_all(calls.handlers, stream, call_once)
    assert isinstance(raised.value.__cause__, TimeoutError)


async def test_a_timeout_within_a_handler_tells_no_personal_value() -> None:
    class Moved(DomainEvent):
        who: str
        email: Annotated[str, Personal(subject="who")]

    async def handler(event: Moved, context: EventContext) -> None:
        raise TimeoutError(f"no answer about {event.email}")

    handlers = EventHandlers("mails")
    handlers.add(handler, priority=0)
    event = Moved(who="c-1", email="ann@example.org")
    stream = EventStream(
        aggregate_type="X", aggregate_id="x", version=1, command_id="c", correlation_id="c",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC), events=(event,),
    )  # fmt: skip
    with pytest.raises(EventHandlerError, match="no answer about") as raised:
        await call_all(handlers, stream, call_once)
    assert isinstance(raised.value.__cause__, TimeoutError)
    assert "ann" not in "".join(traceback.format_exception(raised.value))
