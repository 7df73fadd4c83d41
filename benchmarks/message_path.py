"""
The way of one message: which functions of the queue a warm `send` calls, from the socket to the disk.

    python -m benchmarks.message_path            the figures of each leg
    python -m benchmarks.message_path --list     and the functions, in the order of their first calls

A broker runs in a thread of its own, with a real disk whose syncs count as quick; the producer runs in the
main thread, so the calls of a thread are the calls of one side. Of several sends the one with the fewest
calls counts, because timers of the broker and of the client may fall into the others. A comprehension
counts as a part of its function, as newer versions of Python compile it.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from benchmarks.calls import call_of
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings

__all__ = ["Leg", "Step", "trace_send"]

SENDS, WARMING = 8, 3
SEGMENT_BYTES = 1 << 24
_QUEUE = "headrace_mq."


class Step(NamedTuple):
    """A function of the queue, by its module and its qualified name."""

    module: str
    function: str


class Leg(NamedTuple):
    """The calls of one part of the way, in their order."""

    name: str
    calls: Sequence[Step]

    @property
    def functions(self) -> list[Step]:
        """Each function once, in the order of the first calls."""
        return list(dict.fromkeys(self.calls))

    @property
    def files(self) -> list[str]:
        """Each module once, in the order of the first calls."""
        return list(dict.fromkeys(step.module for step in self.calls))


class QuickDisk(SystemFiles):
    """The machine's disk; its syncs count as quick, so that they stay on the event loop."""

    def sync(self, fd: int) -> int:
        """Makes a file durable and says that it took a microsecond."""
        super().sync(fd)
        return 1


class Recorder:
    """Notes the calls of functions of the queue in the thread that installs it.

    Attributes:
        on: whether calls are noted.
        calls: what was noted.
        synced: how many of them came before the return of the first sync.
    """

    def __init__(self) -> None:
        self.on = False
        self.calls: list[Step] = []
        self.synced = 0
        self._steps: dict[CodeType, Step | None] = {}

    def begin(self) -> None:
        """Forgets what was noted and notes from now on."""
        self.calls, self.synced, self.on = [], 0, True

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Takes an event of the interpreter."""
        if not self.on or event not in {"call", "return"}:
            return
        code = frame.f_code
        if code not in self._steps:
            self._steps[code] = _step_of(code)
        step = self._steps[code]
        if step is None:
            return
        if event == "call":
            self.calls.append(step)
        elif step.function == "Segment.sync" and not self.synced:
            self.synced = len(self.calls)


def _step_of(code: CodeType) -> Step | None:
    call = call_of(code)
    if call is None or not call.module.startswith(_QUEUE):
        return None
    return Step(call.module.removeprefix(_QUEUE), call.function)


@contextmanager
def _broker(directory: Path, recorder: Recorder) -> Iterator[tuple[str, Callable[[], None]]]:
    """Runs a broker in a thread; gives its address, and what waits until its loop did all it had."""
    ready, addresses = threading.Event(), list[str]()
    loops, stops = list[asyncio.AbstractEventLoop](), list[asyncio.Event]()

    async def serve() -> None:
        store = StoreSettings(directory=directory, segment_bytes=SEGMENT_BYTES)
        settings = BrokerSettings(store=store, port=0, filter_processes_max=0)
        async with Broker(settings, files=QuickDisk()) as broker:
            loops.append(asyncio.get_running_loop())
            stops.append(asyncio.Event())
            addresses.append(broker.address)
            ready.set()
            await stops[0].wait()

    def work() -> None:
        sys.setprofile(recorder)
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    def settle() -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loops[0]).result()

    thread = threading.Thread(target=work, name="broker")
    thread.start()
    ready.wait()
    if not addresses:
        thread.join()
        raise RuntimeError("the broker did not start; its log says why")
    try:
        yield addresses[0], settle
    finally:
        loops[0].call_soon_threadsafe(stops[0].set)
        thread.join()


def trace_send(directory: Path, sends: int = SENDS) -> list[Leg]:
    """Sends messages one by one and returns the shortest of each leg.

    Args:
        directory: where the broker keeps its files; empty.
        sends: how many messages are sent, after those that warm everything up.

    Returns:
        Three legs: the broker up to the end of the sync, the whole broker, and the client.
    """
    inside, outside = Recorder(), Recorder()
    found: list[list[Leg]] = []

    async def run(address: str, settle: Callable[[], None]) -> None:
        message = Message(topic="path", key="k", body=b"x" * 100)
        async with Producer(address) as producer:
            for _ in range(WARMING + sends):
                inside.begin()
                outside.begin()
                await producer.send(message)
                outside.on = False
                await asyncio.to_thread(settle)
                inside.on = False
                found.append(_legs(inside, outside))

    with _broker(directory, inside) as (address, settle):
        before = sys.getprofile()
        sys.setprofile(outside)
        try:
            asyncio.run(run(address, settle))
        finally:
            sys.setprofile(before)
    warm = zip(*found[WARMING:], strict=True)
    return [min(legs, key=lambda leg: len(leg.calls)) for legs in warm]


def _legs(inside: Recorder, outside: Recorder) -> list[Leg]:
    return [
        Leg("broker: bytes to disk", inside.calls[: inside.synced]),
        Leg("broker: bytes to answer", inside.calls),
        Leg("client: send to result", outside.calls),
    ]


def main() -> None:
    """Prints the figures, and the functions where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the functions of each leg")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        legs = trace_send(Path(directory))
    print(f"{'leg':26}{'calls':>7}{'functions':>11}{'files':>7}")
    for leg in legs:
        print(f"{leg.name:26}{len(leg.calls):7}{len(leg.functions):11}{len(leg.files):7}")
    for leg in legs[1:] if asked.list else ():
        print(f"\n{leg.name}")
        for step in leg.functions:
            print(f"{leg.calls.count(step):5}  {step.module}:{step.function}")


if __name__ == "__main__":
    main()
