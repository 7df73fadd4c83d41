"""The trace of one command: what it counts, and that it finds the whole way."""

import asyncio
import importlib
from collections.abc import Callable
from functools import reduce

import pytest

from benchmarks.path import Call, Walk, calls_of, table, walk
from headrace._runtime.deadlines import Deadlines
from headrace._runtime.tasks import finish
from headrace.domain.message import MAIN_TOPIC
from headrace.domain.topics import command_topic


@pytest.fixture(scope="module")
def found() -> Walk:
    return walk()


def test_the_trace_goes_from_execute_over_the_broker_to_the_result(found: Walk) -> None:
    calls = [f"{call.module}.{call.function}" for call in found.calls]
    assert calls[0] == "headrace.bus.CommandBus.execute"
    stages = [
        "headrace.transports.queue.QueueTransport.publish_soon",
        "headrace.commands.processor.CommandProcessor.take",
        "headrace.domain.aggregate.Aggregate.record",
        "headrace.stores.sqlite.store.SqliteEventStore.append",
        "headrace.events.publisher.Publisher.offer",
        "headrace.transports.queue.QueueTransport.reply",
        "headrace.bus.CommandBus._receive",
    ]
    assert sorted(stages, key=calls.index) == stages
    assert found.counts("headrace_mq.broker")[0] > 0


def test_every_function_of_the_trace_exists(found: Walk) -> None:
    for call in set(found.calls):
        owner, *_ = call.function.split(".<locals>")
        reduce(getattr, owner.split("."), importlib.import_module(call.module))


def test_the_trace_without_a_broker_leaves_the_queue_out() -> None:
    assert walk(local=True).counts("headrace_mq") == (0, 0, 0)


def noted(work: Callable[[], object]) -> list[Call]:
    with calls_of() as calls:
        work()
    return calls


def test_a_call_is_noted_with_its_module_and_its_name() -> None:
    (topic,) = noted(lambda: command_topic("bank", MAIN_TOPIC))
    assert topic == Call("headrace.domain.topics", "command_topic")
    assert topic.package == "headrace.domain"
    assert [call.function for call in noted(lambda: len(Deadlines()))] == [
        "Deadlines.__init__",
        "Deadlines.__len__",
    ]


def test_a_coroutine_that_goes_on_is_no_second_call() -> None:
    def work() -> None:
        asyncio.run(finish(asyncio.to_thread(int)))

    assert noted(work) == [Call("headrace._runtime.tasks", "finish")]


def test_the_table_counts_each_function_once_and_each_call() -> None:
    one, other = Call("headrace.bus", "a"), Call("headrace.commands.mailbox", "b")
    lines = [line.split() for line in table(Walk([one, other, other]))]
    assert lines[1] == ["headrace", "3", "2", "2"]
    assert ["headrace.commands", "2", "1", "1"] in lines
    assert lines[-1] == ["headrace_mq", "0", "0", "0"]
