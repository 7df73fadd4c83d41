"""The trace of one command: what it counts, and that it finds the whole way."""

import asyncio
import importlib
import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest

from benchmarks.calls import Call
from benchmarks.command_path import Walk, calls_of, table, walk
from headrace._runtime.deadlines import Deadlines
from headrace._runtime.tasks import finish
from headrace.domain.message import MAIN_TOPIC
from headrace.domain.topics import command_topic

ARCHITECTURE = Path(__file__).parents[3] / "framework" / "ARCHITECTURE.md"
# The calls counted, and a few: a change that needs more raises it and says why in its commit.
CALLS_MAX = 151
CALLS_IN_ONE_PROCESS_MAX = 171


@pytest.fixture(scope="module")
def found() -> Walk:
    return walk()


@pytest.fixture(scope="module")
def drawing() -> list[tuple[str, str]]:
    """Package and function of each step that the architecture document draws."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    drawn = text.partition("## The way of one command\n")[2].split("```")[1]
    return re.findall(r"^(\w+) +([\w.]+) ", drawn, flags=re.MULTILINE)


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


def test_the_drawing_names_every_package_of_the_trace(
    found: Walk, drawing: list[tuple[str, str]]
) -> None:
    passed = {call.package for call in found.calls if call.module.startswith("headrace.")}
    assert {f"headrace.{package}" for package, _ in drawing} == passed


def test_the_steps_of_the_drawing_are_calls_of_the_trace_in_their_order(
    found: Walk, drawing: list[tuple[str, str]]
) -> None:
    calls = iter([f"{call.module}.{call.function}" for call in found.calls])
    for package, function in drawing:
        step = f"headrace.{package}.{function}"
        assert step in calls, f"{step} is not called, or not here: correct {ARCHITECTURE.name}"


def test_a_command_takes_no_more_calls_than_it_did(found: Walk) -> None:
    assert found.counts("headrace")[0] <= CALLS_MAX


def test_a_command_in_one_process_needs_no_queue_and_no_more_calls_than_it_did() -> None:
    local = walk(local=True)
    assert local.counts("headrace_mq") == (0, 0, 0)
    assert local.counts("headrace")[0] <= CALLS_IN_ONE_PROCESS_MAX


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
