"""The supervisor around processes that are no brokers: how it starts, ends and reports them."""

import asyncio
import dataclasses
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace_mq._runtime.clock import SystemClock
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings, SuperviseSettings
from headrace_mq.supervisor.supervisor import Supervised, is_answered, supervise

SETTINGS = SuperviseSettings(pause_ms_min=1, pause_ms_max=1, abort_ms_max=1)


def supervised(code: str, reports: Path) -> Supervised:
    def command(port: int | None) -> tuple[str, ...]:
        return (sys.executable, "-S", "-X", "faulthandler", "-c", code, str(port))

    return Supervised(command=command, ready="ready on ", reports=reports, versions={"test": "1"})


def turns(folder: Path, *codes: str) -> str:
    """Code that does another thing at each start; each start leaves a file."""
    return (
        f"import os, sys, pathlib, signal; folder = pathlib.Path({str(folder)!r})\n"
        "turn = len(list(folder.glob('turn*'))); (folder / f'turn{turn}').touch()\n"
        f"exec({list(codes)!r}[turn], globals())"
    )


def text_of(report: str | Path) -> str:
    return Path(report).read_text(encoding="utf-8")


async def test_a_broker_that_dies_is_started_again_at_its_port_with_a_report_each(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    code = turns(
        tmp_path,
        "print('ready on 127.0.0.1:4711', flush=True); sys.stderr.write('alas\\n'); sys.exit(1)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "print('port', sys.argv[1]); sys.exit(0)",
    )
    with capture_logs() as logs:
        status = await supervise(supervised(code, tmp_path / "c"), SETTINGS, said=said.append)
    assert status == 0
    assert said == ["ready on 127.0.0.1:4711", "port 4711"]
    told = [log for log in logs if log["event"] == "the broker ended and is started again"]
    assert [log["ended"] for log in told] == ["exit status 1", "signal SIGKILL"]
    reports = [text_of(log["report"]) for log in told]
    assert "alas" in reports[0]
    assert "test: 1" in reports[1]


async def test_a_broker_that_refuses_to_start_is_left_alone(tmp_path: Path) -> None:
    with capture_logs() as logs:
        status = await supervise(
            supervised("import sys; sys.exit(2)", tmp_path / "c"), SETTINGS, said=print
        )
    assert (status, (tmp_path / "c").exists()) == (2, False)
    assert "the broker refuses to start; correct what its output says, then start it again" in {
        log["event"] for log in logs
    }


async def test_a_broker_gets_the_signal_for_new_certificates_once_it_is_ready(
    tmp_path: Path,
) -> None:
    code = (
        "import signal, sys\n"
        "print('waiting', flush=True)\n"
        "sys.stdin.read()\n"
        "signal.signal(signal.SIGHUP, lambda *_: (print('renewed', flush=True), sys.exit(0)))\n"
        "print('ready on 127.0.0.1:4711', flush=True)\n"
        "signal.pause()\n"
    )
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line)
        if line == "waiting":  # while it starts, the signal would end it
            os.kill(os.getpid(), signal.SIGHUP)

    renewing = dataclasses.replace(supervised(code, tmp_path / "c"), renews=True)
    with capture_logs():
        status = await supervise(renewing, SETTINGS, said=hear)
    assert (status, said) == (0, ["waiting", "ready on 127.0.0.1:4711", "renewed"])


class LeapingClock(SystemClock):
    """The machine's clock, and what it is ahead."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms

    def leap(self, _: str) -> None:
        self.ahead_ms += SETTINGS.start_ms_max


async def test_a_broker_that_never_gets_ready_is_ended_with_its_stacks(tmp_path: Path) -> None:
    settings = SuperviseSettings(pause_ms_min=1, pause_ms_max=1, abort_ms_max=20_000)
    waits = "def waits():\n    print('waiting', flush=True)\n    signal.pause()\nwaits()"
    code, clock = turns(tmp_path, waits, "sys.exit(0)"), LeapingClock()
    with capture_logs():
        status = await supervise(
            supervised(code, tmp_path / "c"), settings, said=clock.leap, clock=clock
        )
    (report,) = (tmp_path / "c").iterdir()
    text = text_of(report)
    assert status == 0
    assert "signal SIGABRT" in text
    assert "in waits" in text


async def test_a_report_that_cannot_be_written_keeps_nothing_from_its_restart(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    code = turns(tmp_path, "sys.exit(1)", "sys.exit(0)")
    with capture_logs() as logs:
        status = await supervise(supervised(code, tmp_path / "file"), SETTINGS, said=print)
    assert status == 0
    assert "the crash report could not be written" in {log["event"] for log in logs}


async def test_a_program_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    nothing = Supervised(
        command=lambda _: (str(tmp_path / "nothing"),), ready="r", reports=tmp_path, versions={}
    )
    with pytest.raises(FileNotFoundError):
        await supervise(nothing, SETTINGS, said=print)


async def test_a_broker_answers_even_where_it_has_no_place_for_one_more(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0, connections_max=1)) as broker:
        assert await is_answered(broker.address, timeout_ms=20_000)
        host, port = broker.address.rsplit(":", 1)
        while broker._state is not None and broker._state.server.connections:
            await asyncio.sleep(0)
        _, writer = await asyncio.open_connection(host, int(port))
        for _ in range(100):
            assert await is_answered(broker.address, timeout_ms=20_000)
        writer.transport.abort()


async def test_a_connection_that_is_cut_off_is_an_answer(free_port: Callable[[], int]) -> None:
    def cut_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    port = free_port()
    async with await asyncio.start_server(cut_off, "127.0.0.1", port):
        assert await is_answered(f"127.0.0.1:{port}", timeout_ms=20_000)


async def test_a_broker_that_accepts_nothing_or_is_not_there_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stuck:
        address = f"127.0.0.1:{stuck.getsockname()[1]}"
        assert not await is_answered(address, timeout_ms=50)
    assert not await is_answered(address, timeout_ms=20_000)
