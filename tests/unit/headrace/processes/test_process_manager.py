"""A process manager reacts to events and rejections with commands of derived ids."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from headrace.domain.message import Command, EventContext
from headrace.errors import DefinitionError
from headrace.processes.process import Process
from headrace.processes.process_manager import Later, ProcessManager


@pytest.fixture
def doubling(domain: Any) -> ProcessManager:
    manager = ProcessManager("doubling")

    @manager.on
    def added(event: domain.Added, context: Any) -> Iterable[Command]:
        yield domain.Add(counter_id=f"{context.aggregate_id}x", amount=event.amount)
        yield domain.Add(counter_id=f"{context.aggregate_id}y", amount=event.amount)

    @manager.on_rejection
    def refused(command: domain.Add, rejection: Any) -> Iterable[Command]:
        yield domain.Add(counter_id=f"{command.counter_id}r", amount=len(rejection.sentence))

    return manager


@pytest.mark.parametrize("name", ["", "a:b", "x" * 101])
def test_an_unusable_name_is_refused(name: str, domain: Any) -> None:
    for define in (ProcessManager, partial(Process, state=domain.Total)):
        with pytest.raises(DefinitionError, match="choose a name of 1 to 100 characters"):
            define(name)


def test_every_event_of_a_stream_causes_its_commands_in_order(
    domain: Any, doubling: ProcessManager
) -> None:
    stream = domain.stream("a", 1, domain.Added(amount=1), domain.Cleared(), domain.Added(amount=2))
    commands = [envelope.command for envelope in doubling.react(stream)]
    assert [(command.aggregate_id, command.amount) for command in commands] == [
        ("ax", 1),
        ("ay", 1),
        ("ax", 2),
        ("ay", 2),
    ]


def test_equal_streams_give_equal_ids_and_other_streams_give_others(
    domain: Any, doubling: ProcessManager
) -> None:
    def ids(aggregate_id: str, version: int) -> list[str]:
        envelopes = doubling.react(domain.stream(aggregate_id, version))
        return [envelope.command_id for envelope in envelopes]

    assert ids("a", 1) == ids("a", 1)
    assert len({*ids("a", 1), *ids("a", 2), *ids("b", 1)}) == 6


def test_two_process_managers_give_different_ids(domain: Any, doubling: ProcessManager) -> None:
    other = ProcessManager("other")

    @other.on
    def added(event: domain.Added, context: Any) -> Iterable[Command]:
        yield domain.Add(counter_id="ax", amount=event.amount)

    stream = domain.stream("a", 1)
    assert other.react(stream)[0].command_id != doubling.react(stream)[0].command_id


def test_a_rejection_causes_commands_from_the_rejected_one(
    domain: Any, doubling: ProcessManager
) -> None:
    (envelope,) = doubling.react(domain.rejection("a", "c-1"))
    assert envelope.command == domain.Add(counter_id="ar", amount=2)
    assert envelope.correlation_id == "c"


def test_streams_without_a_handler_cause_nothing(domain: Any) -> None:
    assert ProcessManager("deaf").react(domain.stream("a", 1)) == []
    assert ProcessManager("deaf").react(domain.rejection("a", "c-1")) == []


def test_a_second_handler_for_an_event_is_refused(domain: Any, doubling: ProcessManager) -> None:
    def again(event: domain.Added, context: Any) -> Iterable[Command]:
        return []

    with pytest.raises(DefinitionError, match="handles Added twice"):
        doubling.on(again)


def test_a_handlers_annotation_names_its_message_type(doubling: ProcessManager) -> None:
    with pytest.raises(DefinitionError, match="annotated with a DomainEvent class"):
        doubling.on(lambda event, context: [])
    with pytest.raises(DefinitionError, match="annotated with a Command class"):
        doubling.on_rejection(lambda command: [])


def test_an_async_handler_is_refused(domain: Any, doubling: ProcessManager) -> None:
    async def asks(event: domain.Noted, context: EventContext) -> Any:
        yield

    with pytest.raises(DefinitionError, match="asks is async; write `def`"):
        doubling.on(asks)  # type: ignore[type-var]  # the mistake


def test_later_refuses_a_value_that_is_no_command() -> None:
    with pytest.raises(TypeError, match="takes a command and a moment"):
        Later("a note", at=datetime.now(UTC))  # type: ignore[arg-type]  # the mistake


def test_only_streams_that_cause_commands_concern_a_manager(
    domain: Any, doubling: ProcessManager
) -> None:
    noted, added = domain.Noted(text="nobody reacts"), domain.Added(amount=1)
    assert doubling.concerns(domain.stream("a", 1, noted, added))
    assert doubling.concerns(domain.rejection("a", "c"))
    assert not doubling.concerns(domain.stream("a", 1, noted))
    assert doubling.react(domain.stream("a", 1, noted)) == []


def test_a_command_for_later_keeps_its_moment_and_has_an_id_like_any_other(domain: Any) -> None:
    reminding = ProcessManager("reminding")
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)

    @reminding.on
    def added(event: domain.Added, context: Any) -> Iterable[Command | Later]:
        yield domain.Add(counter_id="now", amount=1)
        yield Later(domain.Add(counter_id="then", amount=1), at=moment)

    now, then = reminding.react(domain.stream("a", 1))
    assert (now.due, then.due) == (None, moment)
    assert now.command_id != then.command_id
    assert reminding.react(domain.stream("a", 1))[1].command_id == then.command_id


def test_a_delay_is_handed_on_as_one(domain: Any) -> None:
    reminding = ProcessManager("reminding")
    delay = timedelta(minutes=15)

    @reminding.on
    def added(event: domain.Added, context: Any) -> Iterable[Later]:
        yield Later(domain.Add(counter_id="then", amount=1), delay=delay)

    (then,) = reminding.react(domain.stream("a", 1))
    assert then.due == delay
    assert reminding.react(domain.stream("a", 1))[0].command_id == then.command_id


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "say once when a Later is due"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC), "delay": timedelta(1)}, "say once"),
        ({"delay": timedelta(seconds=-1)}, "is not within 0 and 365 days; for more, give at="),
        ({"delay": timedelta(days=365, microseconds=1)}, "is not within 0 and 365 days"),
    ],
)
def test_a_later_is_due_at_a_moment_or_after_a_delay(
    domain: Any, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Later(domain.Add(counter_id="a", amount=1), **given)


def test_a_moment_without_a_zone_is_refused(domain: Any) -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        Later(domain.Add(counter_id="a", amount=1), at=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused


def test_a_handler_of_a_base_class_or_of_several_gets_all_of_their_events(domain: Any) -> None:
    class More(domain.Added):  # type: ignore[misc,name-defined]  # the fixture's class
        pass

    listening = ProcessManager("listening")

    @listening.on
    def added(event: domain.Added, context: Any) -> Iterable[Command]:
        yield domain.Add(counter_id="base", amount=1)

    @listening.on
    def others(event: domain.Cleared | domain.Noted, context: Any) -> Iterable[Command]:
        yield domain.Add(counter_id="several", amount=1)

    stream = domain.stream(
        "a", 1, More(amount=1), domain.Cleared(), domain.Noted(text="n"), domain.Added(amount=2)
    )
    assert listening.concerns(domain.stream("a", 1, More(amount=1)))
    assert [one.aggregate_id for one in listening.react(stream)] == [
        "base",
        "several",
        "several",
        "base",
    ]
