"""Letters of event handlers: taken up in order, with what is mended, and nothing lost."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from headrace.domain.message import EventContext
from headrace.errors import EventHandlerError, LetterNotFound
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.letters import HandlerLetters
from headrace.handlers.progress import HandlerProgress
from headrace.stores.database.parked import Letter
from headrace.transports.base import Incoming


class Mail:
    """One aggregate whose four events wait, and a handler that notes what it is called for."""

    def __init__(self, models: Any, store: Any, domain: Any) -> None:
        self.models = models
        self.store = store
        self.notes: list[int] = []
        self.errors: dict[int, Exception] = {}
        handlers = EventHandlers("mail")

        async def added(event: domain.Added, context: EventContext) -> None:
            if event.amount in self.errors:
                raise self.errors[event.amount]
            self.notes.append(event.amount)

        handlers.add(added, priority=0)
        self.letters = HandlerLetters(handlers, models, store)
        store.streams += [domain.stream("a", version) for version in (1, 2, 3, 4)]

    async def park(self, held: int = 4) -> None:
        message = Incoming(("shop.events", 0), 0, "a", "", {}, b"")
        for _ in range(held):
            await self.models.transact(
                partial(
                    HandlerProgress("mail").park,
                    message=message,
                    version=0,
                    error=ValueError("no"),
                    now=datetime(2026, 1, 31, tzinfo=UTC),
                    letters_max=1,
                )
            )


@pytest.fixture
async def mail(sqlite_models: Any, store: Any, domain: Any) -> Mail:
    mail = Mail(sqlite_models, store, domain)
    await mail.park()
    return mail


def told(letter: Letter | None) -> tuple[int, int, int]:
    assert letter is not None
    return letter.version, letter.held, letter.retries


async def test_waiting_events_are_handled_in_order_and_the_letter_is_deleted(mail: Mail) -> None:
    (letter,) = await mail.letters.all()
    assert told(letter) == (0, 4, 0)
    assert await mail.letters.retry("a") is None
    assert mail.notes == [1, 2, 3, 4]
    assert await mail.letters.all() == []
    with pytest.raises(LetterNotFound, match="mail has not parked 'a'"):
        await mail.letters.retry("a")


async def test_a_retry_that_fails_keeps_its_progress_and_the_error(mail: Mail) -> None:
    mail.errors[3] = ValueError("still no")
    left = await mail.letters.retry("a")
    assert told(left) == (2, 4, 1)
    assert "still no" in str(left)
    assert told(await mail.letters.retry("a")) == (2, 4, 2)
    assert mail.notes == [1, 2]
    mail.errors.clear()
    assert await mail.letters.retry("a") is None
    assert mail.notes == [1, 2, 3, 4]


async def test_skip_leaves_out_the_one_stream_that_fails(mail: Mail) -> None:
    mail.errors = {1: ValueError("no"), 3: ValueError("no")}
    assert told(await mail.letters.skip("a")) == (2, 4, 1)
    assert await mail.letters.skip("a") is None
    assert mail.notes == [2, 4]


async def test_an_outage_is_no_failure_of_the_event(mail: Mail) -> None:
    mail.errors[2] = ConnectionError("the mail server is away")
    # A handler's own errors count, whatever they are; those of the event store do not.
    assert told(await mail.letters.retry("a")) == (1, 4, 1)

    async def away(*_: Any, **__: Any) -> Any:
        raise ConnectionError("the event store is away")

    mail.store.read_stream = away
    with pytest.raises(ConnectionError, match="event store is away"):
        await mail.letters.retry("a")
    assert told((await mail.letters.all())[0]) == (1, 4, 1)


async def test_a_retry_fails_if_events_come_faster_than_they_are_handled(mail: Mail) -> None:
    transact = mail.models.transact

    async def never_released(work: Any) -> Any:
        if getattr(getattr(work, "func", None), "__name__", "") == "release":
            return False
        return await transact(work)

    mail.models.transact = never_released
    with pytest.raises(EventHandlerError, match="events of a keep coming faster than mail"):
        await mail.letters.retry("a")
    assert mail.notes == [1, 2, 3, 4]
