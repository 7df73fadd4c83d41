"""The way of one message: its length, and its drawing in the architecture of the queue."""

import importlib
import re
import sys
from functools import reduce
from pathlib import Path

import pytest

from benchmarks.message_path import Leg, Recorder, Step, main, trace_send

# Functions and calls of each leg; lower them when a way gets shorter. A longer one needs a reason.
LIMITS = {
    "broker: bytes to disk": (50, 54),
    "broker: bytes to answer": (71, 76),  # two of them count how long a flush and an answer took
    "client: send to result": (37, 42),
}
ARCHITECTURE = Path(__file__).parents[3] / "mq" / "ARCHITECTURE.md"
LINE = re.compile(r"^ ([\w.]+) +(\w+):([\w.]+)  +\S", re.MULTILINE)
DRAWN = [
    Step(f"{package}.{module}", function)
    for package, module, function in LINE.findall(ARCHITECTURE.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> list[Leg]:
    return trace_send(tmp_path_factory.mktemp("path"))


def test_the_way_of_a_message_does_not_get_longer(legs: list[Leg]) -> None:
    lengths = {leg.name: (len(leg.functions), len(leg.calls)) for leg in legs}
    longer = {
        name: length
        for name, length in lengths.items()
        if length[0] > LIMITS[name][0] or length[1] > LIMITS[name][1]
    }
    assert lengths.keys() == LIMITS.keys()
    assert longer == {}


def test_the_way_to_the_disk_begins_at_the_socket_and_ends_with_a_sync(legs: list[Leg]) -> None:
    to_disk, to_answer, _ = legs
    assert to_disk.calls[0] == Step("_net.connection", "Connection.data_received")
    assert Step("store.segment.segment", "Segment.sync") in to_disk.calls
    assert Step("store.message_store", "MessageStore._committed") not in to_disk.calls
    assert Step("store.message_store", "MessageStore._committed") in to_answer.calls


def test_the_way_of_the_client_begins_with_send(legs: list[Leg]) -> None:
    assert legs[2].calls[0] == Step("client.producer.producer", "Producer.send")


def test_every_package_that_a_message_passes_is_drawn(legs: list[Leg]) -> None:
    passed = {step.module.rpartition(".")[0] for leg in legs for step in leg.calls}
    assert passed - {step.module.rpartition(".")[0] for step in DRAWN} == set()


@pytest.mark.parametrize("step", DRAWN, ids=lambda step: step.function)
def test_every_function_that_is_drawn_exists(step: Step) -> None:
    module = importlib.import_module(f"headrace_mq.{step.module}")
    assert callable(reduce(getattr, step.function.split("."), module))


def test_the_functions_are_drawn_in_the_order_of_their_first_calls(legs: list[Leg]) -> None:
    _, broker, client = legs
    at = [step.module for step in DRAWN].index("_net.connection")
    back = [step.module for step in DRAWN].index("_net.client_connection")
    there, inside, home = DRAWN[:at], DRAWN[at:back], DRAWN[back:]
    assert [step for step in client.functions if step in there + home] == there + home
    assert [step for step in broker.functions if step in inside] == inside


def test_a_leg_names_each_function_and_each_file_once() -> None:
    first, second = Step("a", "one"), Step("a", "two")
    leg = Leg("leg", [first, second, first])
    assert leg.functions == [first, second]
    assert leg.files == ["a"]


def test_a_recorder_that_is_off_notes_nothing() -> None:
    recorder = Recorder()
    recorder.begin()
    recorder.on = False
    recorder(sys._getframe(), "call", None)
    assert recorder.calls == []


def test_functions_of_others_are_not_noted() -> None:
    recorder = Recorder()
    recorder.begin()
    recorder(sys._getframe(), "call", None)
    assert recorder.calls == []


def test_the_command_prints_the_figures_and_the_functions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["message_path", "--list"])
    main()
    out = capsys.readouterr().out
    assert "broker: bytes to disk" in out
    assert "store.segment.segment:Segment.sync" in out
