"""Letters of process managers: what cannot be taken up stays, with why."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from headrace._projecting.process_letters import (
    ManagerLetters,
    ProcessLetters,
    letters_of,
    reactions,
)
from headrace._projecting.process_standings import ProcessStandings
from headrace._projecting.processes import Processes
from headrace._projecting.workflows import ProcessManager
from headrace.errors import CommandRefused, ProcessError
from headrace.transports.base import Incoming


@pytest.fixture
def park(sqlite_models: Any) -> Any:
    async def run(name: str, message: Incoming, version: int | None) -> None:
        await sqlite_models.transact(
            partial(
                ProcessStandings(name).park_at,
                message=message,
                version=version,
                error=ValueError("no"),
                now=datetime(2026, 1, 31, tzinfo=UTC),
                letters_max=9,
            )
        )

    return run


@pytest.fixture
def manager(domain: Any) -> ProcessManager:
    manager = ProcessManager("copying")

    @manager.on
    def added(event: domain.Added, context: Any) -> Iterable[Any]:
        if event.amount == 666:
            raise ConnectionError("a handler has no business with connections")
        yield domain.Add(counter_id="copy", amount=event.amount)

    return manager


class Bus:
    """Takes no command while the queue is away."""

    def __init__(self) -> None:
        self.away = False
        self.sent: list[Any] = []

    async def send_envelope(self, envelope: Any) -> None:
        if self.away:
            raise CommandRefused("away")
        self.sent.append(envelope)


def message(kind: str, **headers: str) -> Incoming:
    return Incoming(("shop.events", 0), 3, "a", "", {"kind": kind, **headers}, b"")


def test_whatever_a_handler_raises_is_a_failure_of_its_event(
    manager: ProcessManager, domain: Any
) -> None:
    stream = domain.stream("a", 1, domain.Added(amount=666))
    with pytest.raises(ProcessError, match="copying cannot react to what command a-1 did") as told:
        reactions(manager, stream)
    assert isinstance(told.value.__cause__, ConnectionError)


async def test_a_queue_that_is_away_is_no_failure_of_the_event(
    manager: ProcessManager,
    domain: Any,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    park: Any,
) -> None:
    bus = Bus()
    letters = letters_of(manager, bus, sqlite_models, store, serializer)
    assert isinstance(letters, ManagerLetters)
    store.streams = [domain.stream("a", version) for version in (1, 2, 3)]
    await park("copying", message("events", version="2"), 1)
    bus.away = True
    with pytest.raises(CommandRefused):
        await letters.retry("a")
    (letter,) = await letters.all()
    assert (letter.version, letter.retries) == (1, 0)
    bus.away = False
    assert await letters.retry("a") is None
    assert [each.command.amount for each in bus.sent] == [2, 3]


async def test_a_rejection_that_the_store_does_not_have_can_only_be_skipped(
    manager: ProcessManager,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    park: Any,
) -> None:
    letters = ManagerLetters(manager, Bus(), sqlite_models, store, serializer)
    await park("copying", message("rejection", command="c-9"), None)
    left = await letters.retry("a")
    assert left is not None
    assert "the rejection of command c-9 to a is not in the event store" in left.error
    assert await letters.skip("a") is None


async def test_instances_of_another_state_version_are_made_anew_first(
    make_process: Any, domain: Any, sqlite_models: Any, store: Any, serializer: Any, park: Any
) -> None:
    store.streams = [domain.stream("a", version) for version in (1, 2, 3)]
    await park("copies", message("events"), 0)
    before = ProcessLetters(make_process(), sqlite_models, store, serializer)
    assert await before.retry("a") is None
    await park("copies", message("events"), 1)
    process = make_process(state_version=2, factor=10)
    letters = letters_of(process, Bus(), sqlite_models, store, serializer)
    assert await letters.retry("a") is None
    store.streams.append(domain.stream("a", 4))
    await park("copies", message("events"), 3)
    assert await letters.retry("a") is None
    found = await Processes(sqlite_models).get("copies", "a")
    assert (found.seen, found.state["sum"]) == (4, 100)
