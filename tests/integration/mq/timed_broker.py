"""A broker on a thread of its own whose turns are timed, and clients that speak frames to it."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import hello_for
from headrace_mq.broker.server import Broker
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import Body, Fetch, FetchFrom, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame
from headrace_mq.settings import BrokerSettings, StoreSettings

MIB = 1 << 20
# On a machine whose broker does the reference work in REFERENCE_MS; a slower one gets as much more.
PAUSE_MS_MAX = 50
REFERENCE_MS = 10.0
# A measurement that something else disturbed is made again.
ATTEMPTS = 3


def reference_work() -> float:
    """Does what handlers do most, decodes, looks up and encodes; returns its processor time in ms."""
    before = time.thread_time()
    ends = {QueueRef(f"t{number % 48}", number % 1_024): number for number in range(12_000)}
    asked = decode(
        Fetch, encode(Fetch([FetchFrom("t1", n % 1_024, n) for n in range(12_000)], 1, 0))
    )
    found = [(each, ends.get(QueueRef(each.topic, each.queue_id), 0)) for each in asked.queues]
    assert len(encode(Fetch([each for each, _ in found], 1, 0))) > 3_000
    return (time.thread_time() - before) * 1_000


class TimedBroker:
    """A broker on a loop and a thread of its own, and how long its loop's longest turn took."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready: Future[Broker] = Future()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.longest_ms = 0.0

    @contextmanager
    def running(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerState]:
        turn = asyncio.BaseEventLoop._run_once

        def measured(loop: asyncio.BaseEventLoop) -> None:
            before = time.thread_time()
            turn(loop)
            if threading.current_thread() is self._thread:
                self.longest_ms = max(self.longest_ms, (time.thread_time() - before) * 1_000)

        monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", measured)
        self._thread.start()
        state = self._ready.result(60)._state
        assert state is not None
        self.state = state
        try:
            yield state
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(60)

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls a function on the broker's thread."""

        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(60)

    def assert_short_turns(self, act: Callable[[], None]) -> None:
        """Fails if the loop had a turn that was too long, each time something was done."""
        for _ in range(ATTEMPTS):
            self.longest_ms = 0.0
            act()
            longest_ms = self.longest_ms
            slowness = max(1.0, self.call(reference_work) / REFERENCE_MS)
            if longest_ms <= PAUSE_MS_MAX * slowness:
                return
        raise AssertionError(
            f"a turn took {longest_ms:.1f} ms; {PAUSE_MS_MAX * slowness:.1f} ms are allowed here"
        )

    def settle(self) -> None:
        """Waits until what is under way has come to rest."""
        for _ in range(20):
            self.call(lambda: None)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        store = StoreSettings(
            directory=self._directory, segment_bytes=64 * MIB, disk_refuse_percent=100
        )
        settings = BrokerSettings(
            store=store,
            port=0,
            filter_processes_max=0,
            # What is measured is what a request takes, not how often it may come.
            address_queues_per_minute=0,
            address_offsets_per_minute=0,
        )
        async with Broker(settings) as broker:
            self._ready.set_result(broker)
            await self._stop.wait()


class Caller:
    """A client that speaks frames."""

    def __init__(self, address: str, name: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._frames = FrameReader(64 * MIB)
        self._correlation = 0
        self._waiting: list[Frame] = []
        assert self.ask(RequestCode.HELLO, hello_for(name)).code == ResponseCode.OK

    def say(self, code: int, body: Body | bytes) -> int:
        self._correlation += 1
        data = body if isinstance(body, bytes) else encode(body)
        self._socket.sendall(encode_frame(code, self._correlation, data))
        return self._correlation

    def ask(self, code: int, body: Body | bytes) -> Frame:
        correlation = self.say(code, body)
        while True:
            while self._waiting:
                frame = self._waiting.pop(0)
                if frame.correlation in {correlation, 0} and frame.is_answer:
                    return frame
            data = self._socket.recv(MIB)
            assert data, "the broker closed the connection"
            self._waiting += self._frames.feed(data)

    def write(self, data: bytes) -> None:
        """Sends frames that were made elsewhere."""
        self._socket.sendall(data)

    def take(self, count: int, *, at_most_s: float = 60.0) -> int:
        """Reads so many answers, or those that come in time; returns how many."""
        self._socket.settimeout(at_most_s)
        taken = 0
        with suppress(TimeoutError, BlockingIOError):
            while taken < count:
                frames = [*self._frames.feed(self._socket.recv(MIB))]
                assert all(frame.code == ResponseCode.OK for frame in frames)
                taken += len(frames)
        self._socket.settimeout(60)
        return taken

    def close(self) -> None:
        self._socket.close()


@contextmanager
def open_caller(measured: TimedBroker, name: str) -> Iterator[Caller]:
    caller = Caller(measured.state.address, name)
    try:
        yield caller
    finally:
        caller.close()
