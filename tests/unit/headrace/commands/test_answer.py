"""Replies, acknowledgements and dead letters."""

import asyncio
import json

import pytest

from headrace.access.principal import Principal
from headrace.commands import answer as answering
from headrace.commands.answer import result_of
from headrace.domain.stream import EventStream, Rejection
from headrace.transports.base import Outgoing, Place
from headrace_mq.metrics.histogram import Histogram


async def test_a_command_is_acknowledged_only_after_its_events_are_published(world, bank):
    world.start()
    gate = world.transport.before_publish["events"]
    gate.shut()
    call = asyncio.create_task(world.bus.execute(bank.Open(account_id="a-1")))
    await gate.reached.wait()
    await world.settle()
    assert len(await world.stored("a-1")) == 1
    assert not call.done()
    assert world.transport._groups["bank.commands"].offsets == {}
    gate.open()
    assert (await call).status == "executed"
    await world.settle()
    assert list(world.transport._groups["bank.commands"].offsets.values()) == [1]


async def test_a_reply_that_fails_is_forgotten_and_the_command_acknowledged(world, bank):
    world.start()
    world.transport.failures["reply"] = [OSError("the caller is gone")]
    call = asyncio.create_task(world.bus.execute(bank.Open(account_id="a-1"), command_id="c-1"))
    await world.settle()
    assert not call.done()
    await world.stop()
    assert await world.unfinished() == []
    # Asking again is answered from the store.
    world.start()
    call.cancel()
    await asyncio.wait({call})
    again = await world.bus.execute(bank.Open(account_id="a-1"), command_id="c-1")
    assert (again.status, again.version) == ("executed", 1)


async def test_a_reply_that_hangs_holds_up_the_acknowledgement_only_for_a_bounded_time(
    world, bank, monkeypatch
):
    monkeypatch.setattr(answering, "REPLY_MS_MAX", 1)
    world.start()
    world.transport.before_reply.shut()
    call = asyncio.create_task(world.bus.execute(bank.Open(account_id="a-1")))
    await world.transport.before_reply.reached.wait()
    await world.stop()
    assert await world.unfinished() == []
    call.cancel()
    await asyncio.wait({call})


async def test_a_command_that_was_only_sent_is_acknowledged_without_a_reply(world, bank):
    world.start()
    await world.bus.send(bank.Open(account_id="a-1"))
    await world.settle()
    assert not world.transport.before_reply.reached.is_set()
    await world.stop()
    assert await world.unfinished() == []


async def test_a_message_that_does_not_decode_is_parked_and_answered_and_holds_nobody_up(
    world, bank
):
    world.start()
    for body in (
        b"not json",
        b'{"name": "Unknown", "version": 1, "command_id": "c", "correlation_id": "c", "data": {}}',
        json.dumps(
            {
                "name": "Deposit",
                "version": 1,
                "command_id": "c",
                "correlation_id": "c",
                "data": {"account_id": "a-1", "amount": "much"},
            }
        ).encode(),
    ):
        await world.transport.publish(
            Outgoing(topic="bank.commands", key="a-1", body=body, tag="x", headers={"h": "1"})
        )
    opened = await world.bus.execute(bank.Open(account_id="a-1"))
    assert opened.status == "executed"
    await world.settle()
    letters = world.letters.all
    assert [letter.error for letter in letters] == [
        "SerializationError",
        "UnknownMessageType",
        "SerializationError",
    ]
    assert letters[0].body == b"not json"
    assert (letters[0].key, letters[0].name, letters[0].headers["h"]) == ("a-1", "x", "1")
    assert "amount" in letters[2].sentence
    await world.stop()
    assert await world.unfinished() == []


@pytest.mark.parametrize(
    ("account_id", "command_id"),
    [("", "c-1"), ("a" * 256, "c-1"), ("a\x00", "c-1"), ("a-1", ""), ("a-1", "c" * 256)],
)
async def test_ids_that_no_store_could_keep_are_parked_before_the_mailbox(
    world, account_id, command_id
):
    world.start()
    body = json.dumps(
        {
            "name": "Open",
            "version": 1,
            "command_id": command_id,
            "correlation_id": "c",
            "data": {"account_id": account_id},
        }
    ).encode()
    await world.transport.publish(Outgoing(topic="bank.commands", key="k", body=body))
    await world.settle()
    (letter,) = world.letters.all
    assert letter.error == "ValueError"
    assert " id has " in letter.sentence or " id must not contain NUL" in letter.sentence
    assert await world.store.last_position() == 0


async def test_a_dead_letter_is_published_before_its_command_is_acknowledged(world):
    world.start()
    world.letters.failures["park"] = [RuntimeError("x")] * 5 + [OSError("y")] * 5
    gate = world.letters.before["park"]
    gate.shut()
    await world.transport.publish(Outgoing(topic="bank.commands", key="k", body=b"nonsense"))
    await gate.reached.wait()
    assert world.transport._groups["bank.commands"].offsets == {}
    gate.open()
    await world.stop()
    assert len(world.letters.all) == 1
    assert await world.unfinished() == []


def test_the_result_of_a_stream_says_executed_or_rejected(world, bank):
    stream = world.stream("a-1", 3, bank.Closed(), command_id="c-1")
    result = result_of(stream, Place(2, 17))
    assert (result.status, result.version, result.error) == ("executed", 3, "")
    assert result.place == (2, 17)
    rejection = EventStream(
        aggregate_type="Account",
        aggregate_id="a-1",
        version=None,
        command_id="c-1",
        correlation_id="c-1",
        recorded_at=world.clock.now(),
        rejection=Rejection(
            error="overdrawn",
            sentence="too much",
            command_name="Withdraw",
            command_version=1,
            command_data={},
        ),
    )
    result = result_of(rejection, Place(2, 18))
    assert (result.status, result.version) == ("rejected", None)
    assert (result.error, result.sentence) == ("overdrawn", "too much")


async def test_a_command_that_changed_nothing_is_answered_so_again_whatever_happened_since(
    world, bank
):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Close(account_id="a-1"))
    first = await world.bus.execute(bank.Close(account_id="a-1"), command_id="c-1")
    look = await world.bus.execute(bank.Look(account_id="a-1"), command_id="look")
    assert (first.status, first.version) == ("unchanged", 2)
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=5))
    for _ in range(2):
        assert await world.bus.execute(bank.Close(account_id="a-1"), command_id="c-1") == first
        assert await world.bus.execute(bank.Look(account_id="a-1"), command_id="look") == look
        await world.stop()
        world.start()
    assert (await world.account("a-1")).version == 3
    assert all(stream.events for stream in world.published("a-1"))


async def test_outcomes_are_counted(world, bank):
    world.start()
    processor = world.processor
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Look(account_id="a-1"))
    await world.settle()
    assert processor.work.outcomes == {"executed": 1, "rejected": 1, "unchanged": 1}


async def test_a_processor_measures_handlers_and_appends_once_it_is_asked_to(world, bank):
    world.start()
    processor = world.processor
    await world.bus.execute(bank.Open(account_id="a-1"))
    assert processor.work.handlers is None
    processor.measure(Histogram)
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    await world.bus.execute(bank.Withdraw(account_id="a-1", amount=5))
    assert {name: each.read().total for name, each in processor.work.handlers.items()} == {
        "Deposit": 1, "Withdraw": 1,
    }  # fmt: skip
    assert processor.work.commits.read().total == 2
    await world.settle()
    assert processor.in_flight == 0
    assert processor.cache.hits >= 1


async def test_a_command_that_was_stored_before_a_crash_is_published_though_it_is_denied_now(
    world, bank
):
    ann = Principal("ann", frozenset({"clerk"}))
    world.handlers.allowances.allow(["clerk"], commands=["Open"])
    world.store.after_append.shut()
    world.start()
    call = asyncio.create_task(
        world.bus.execute(bank.Open(account_id="a"), command_id="1", principal=ann)
    )
    await world.store.after_append.reached.wait()
    await world.crash()
    world.store.after_append.open()
    assert world.transport.published["events"] == []
    world.handlers.allowances._commands.clear()
    world.start()
    result = await call
    assert (result.status, result.version) == ("executed", 1)
    assert len(world.transport.published["events"]) == 1
    denied = await world.bus.execute(bank.Open(account_id="a"), command_id="2", principal=ann)
    assert (denied.status, denied.error) == ("rejected", "CommandNotAllowed")
    assert len(world.transport.published["events"]) == 1
