"""`headrace broker --supervise` with real processes: killed, stuck, stopped, refused."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import _command_line
from headrace.cli.queue import broker as subject
from headrace.cli.queue.broker import child_command
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.protocol.administration import NO_TRAFFIC, BrokerStatus
from headrace_mq.protocol.limits import LeaderDescription, ReplicaDescription

MESSAGES = 200


class SupervisedBroker:
    """A supervisor in a process of its own, which starts the broker's."""

    def __init__(self, data: Path, port: int, *options: str) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "headrace", "broker", "--supervise", "--data", str(data),
                "--port", str(port), "--log-format", "json", *options,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ready(self) -> str:
        """Waits for the line of readiness; returns the address in it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("headrace broker ready on "), line + self.rest()
        return line.split()[-1]

    def logged(self, event: str) -> Any:
        """Waits for a line of the log; returns its fields."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("{") and (fields := json.loads(line))["event"] == event:
                return fields
        raise AssertionError(f"it ended without: {event}")

    def child(self) -> int:
        """Waits until the broker's process is started; returns its number."""
        pid = self.logged("the broker is being started")["pid"]
        assert isinstance(pid, int)
        return pid

    def rest(self) -> str:
        """Waits for its end; returns what it still wrote to standard error."""
        return self.process.communicate()[1]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.rest()
        return self.process.returncode


Start = Callable[..., SupervisedBroker]


@pytest.fixture
def start(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Start]:
    started: list[SupervisedBroker] = []

    def start_one(*options: str) -> SupervisedBroker:
        started.append(SupervisedBroker(tmp_path / "data", free_port(), *options))
        return started[-1]

    yield start_one
    for one in started:
        if one.process.poll() is None:
            one.stop()
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()


def text_of(report: Path) -> str:
    return report.read_text(encoding="utf-8")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_killed_broker_comes_back_and_nothing_is_lost(start: Start) -> None:
    broker = start()
    address, pid = broker.ready(), broker.child()
    messages = [Message(topic="t", body=b"%d" % n) for n in range(MESSAGES)]
    async with Producer(address) as producer:
        await producer.create_topic("t", queues=2, retention="forever")
        await producer.send_many(messages[:100])
        os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*(producer.send(message) for message in messages[100:]))
    assert await asyncio.to_thread(broker.ready) == address
    async with AdminClient(address) as admin:
        tail = await admin.tail("t", MESSAGES + 1)
    assert sorted(int(record.body) for record in tail.records) == list(range(MESSAGES))
    told = broker.logged("the broker ended and is started again")
    report = Path(told["report"])
    assert (told["ended"], report.parent) == (
        "signal SIGKILL",
        broker.data.with_name("data.crashes"),
    )
    assert "broker started" in text_of(report)
    assert broker.stop() == 0


def test_a_stuck_broker_is_ended_with_its_stacks_and_comes_back(start: Start) -> None:
    broker = start("--stuck-after", "8s")
    address, pid = broker.ready(), broker.child()
    os.kill(pid, signal.SIGSTOP)
    told = broker.logged("the broker ended and is started again")
    assert told["ended"] == "signal SIGABRT"
    report = text_of(Path(told["report"]))
    assert "Fatal Python error: Aborted" in report
    # Where it stood: a process may be stopped at the beginning of a call, whose file is not known yet.
    assert "(most recent call first)" in report
    assert broker.ready() == address
    assert broker.stop() == 0


def test_a_stop_ends_both_in_order(start: Start) -> None:
    broker = start()
    broker.ready()
    pid = broker.child()
    broker.process.send_signal(signal.SIGTERM)
    assert '"event": "broker stopped"' in broker.rest()
    assert (broker.process.returncode, is_gone(pid)) == (0, True)
    assert not broker.data.with_name("data.crashes").exists()


def test_a_directory_in_use_is_refused_in_a_sentence_and_not_tried_again(start: Start) -> None:
    first = start()
    first.ready()
    second = start()
    words = second.rest()
    assert second.process.returncode == 2
    assert "another broker uses" in words
    assert words.count("the broker is being started") == 1
    assert "correct what its output says" in words


def test_a_broker_stops_in_order_when_its_supervisor_is_killed(start: Start) -> None:
    broker = start()
    address = broker.ready()
    broker.process.kill()
    # The pipe is held by the broker until it has ended.
    broker.rest()
    successor = start("--port", address.rpartition(":")[2])
    assert successor.ready() == address


def test_new_certificates_are_used_after_a_signal_to_the_supervisor(
    start: Start, tmp_path: Path, authority: Any
) -> None:
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    supervisor = start("--tls-certificate", str(certificate), "--tls-key", str(key))
    supervisor.ready()
    authority.issue(tmp_path, "127.0.0.1")
    supervisor.process.send_signal(signal.SIGHUP)
    supervisor.logged("certificate loaded again")
    assert supervisor.stop() == 0


def test_too_short_a_time_is_a_mistake(tmp_path: Path) -> None:
    arguments = ["broker", "--supervise", "--data", str(tmp_path), "--stuck-after", "0"]
    done = CliRunner().invoke(_command_line(), arguments, env={"TERM": "dumb"})
    assert (done.exit_code, "stuck_after_ms must be at least 1" in done.output) == (2, True)


@pytest.mark.parametrize("option", [("--stuck-after", "5s"), ("--crash-reports", "reports")])
def test_options_of_a_supervisor_without_supervise_are_a_mistake(
    tmp_path: Path, option: tuple[str, str]
) -> None:
    arguments = ["broker", "--data", str(tmp_path / "data"), *option]
    done = CliRunner().invoke(_command_line(), arguments, env={"TERM": "dumb"})
    assert (done.exit_code, "only --supervise" in done.output) == (2, True)
    assert not (tmp_path / "data").exists()


def test_the_broker_gets_the_same_options_and_the_last_word_on_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", "broker", "--data", "d", "--port", "0"])
    own = ("-m", "headrace", "broker", "--data", "d", "--port", "0")
    told = (*own, "--supervised-by", str(os.getpid()))
    assert child_command(None)[3:] == told
    assert child_command(4711)[3:] == (*told, "--port", "4711")


def test_a_broker_without_its_supervisor_does_not_start() -> None:
    code = (
        "import typer; from headrace.cli.queue.broker import end_with_parent\n"
        "try:\n    end_with_parent(1 << 30)\nexcept typer.Exit as end:\n    print(end.exit_code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("figures", "rows"),
    [
        ({}, []),
        ({"repaired": 1_200}, ["damaged places, repaired 1,200"]),
        (
            {"damaged": 1, "damage": ["t/0 from offset 1"], "repaired": 2, "unrepaired": 1},
            [
                "damaged places, left out 1", "damaged t/0 from offset 1",
                "damaged places, repaired 2", "damaged places, not repaired 1",
            ],
        ),
    ],
)  # fmt: skip
def test_a_broker_shows_what_is_damaged_and_what_was_repaired(
    figures: dict[str, Any], rows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    described = SimpleNamespace(broker="b:1", started_at_ms=0, epoch=1)
    status = BrokerStatus(0, 1, 1, 0, 1, "", NO_TRAFFIC, NO_TRAFFIC, [], **figures)
    monkeypatch.setattr(subject, "ask", lambda *_: (described, status))
    shown = CliRunner().invoke(_command_line(), ["broker", "show"])
    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert [line for line in lines if line.startswith("damaged")] == rows


def test_a_broker_shows_why_it_takes_or_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = SimpleNamespace(broker="b:1", started_at_ms=0, epoch=1)
    status = BrokerStatus(0, 1, 1, 0, 1, "", NO_TRAFFIC, NO_TRAFFIC, [], shortage="1 of 2 is there")
    monkeypatch.setattr(subject, "ask", lambda *_: (described, status))
    shown = CliRunner().invoke(_command_line(), ["broker", "show"])
    assert "takes messages no: 1 of 2 is there" in " ".join(shown.output.split())


def test_a_leader_shows_its_replicas_and_what_a_failover_may_lose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = [
        ReplicaDescription("b:2", True, 1_500, 40, 1_200, 300),
        ReplicaDescription("b:3", False, 7, 90, 0, 0),
    ]

    def lines_of(*leads: LeaderDescription) -> list[str]:
        described = SimpleNamespace(broker="b:1", started_at_ms=0, epoch=1)
        status = BrokerStatus(0, 1, 1, 0, 1, "", NO_TRAFFIC, NO_TRAFFIC, [], leads=list(leads))
        monkeypatch.setattr(subject, "ask", lambda *_: (described, status))
        shown = CliRunner().invoke(_command_line(), ["broker", "show"])
        assert shown.exit_code == 0, shown.output
        lines = [" ".join(line.split()) for line in shown.output.splitlines()]
        return [line for line in lines if line.startswith(("replica", "a failover", "cut from"))]

    assert lines_of() == []
    assert lines_of(LeaderDescription("leader", 1_200, 300, 12, replicas)) == [
        "replica b:2 in sync, 1,500 bytes behind, had everything 40 ms ago",
        "replica b:3 not in sync, 7 bytes behind, had everything 90 ms ago",
        "a failover may lose 1,200 bytes of acknowledged messages, the oldest of 0.3 s ago",
        "cut from its own log 12 messages; see `headrace store lost`",
    ]
    assert lines_of(LeaderDescription("in_sync", 0, 0, 0, [])) == ["a failover may lose no message"]


def test_a_broker_knows_what_gave_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, str] = {}

    def run(_settings: object, *, ready: object, sources: dict[str, str]) -> None:
        told.update(sources)

    monkeypatch.setattr("headrace_mq.broker.process.run", run)
    file = tmp_path / "broker.toml"
    file.write_text("connections_max = 77\n[store]\nflush = 'always'\n[group]\ncluster = 'c'\n")
    arguments = [
        "broker", "--config", str(file), "--data", str(tmp_path / "d"), "--flush", "interval",
        "--set", "store.disk_look_ms=2s", "--client-quota", "fetch=5MiB", "--nameservers", "127.0.0.1:9875",
    ]  # fmt: skip
    environment = {"HEADRACE_PORT": "0", "HEADRACE_BROKER__FRAME_MS_MAX": "9s"}
    done = CliRunner().invoke(_command_line(), arguments, env=environment)
    assert done.exit_code == 0, done.output
    assert told == {
        "connections_max": str(file), "store.directory": "--data", "store.flush": "--flush",
        "store.disk_look_ms": "--set", "client_fetch_bytes": "--client-quota", "port": "HEADRACE_PORT",
        "frame_ms_max": "HEADRACE_BROKER__FRAME_MS_MAX", "names.servers": "--nameservers",
        "group.cluster": str(file), "names.cluster": str(file),
    }  # fmt: skip
