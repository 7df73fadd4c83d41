"""What tests that kill a process share: the process, and a judge of what it left behind."""

import json
import os
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 1 << 20
Ack = tuple[int, int, int, int]


class Appender:
    """The process of `appender.py`; it lives again after each kill.

    Attributes:
        acks: queue, offset, length and CRC of what this life was told is durable.
        stopped: this life is about to sync, and never will.
        failed: the store of this life failed; it waits to be killed.
        steps: changes of the whole life, if it was not killed.
        status: how this life ended, as `os.wait` tells it, or None while it runs.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("appender.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._pid = 0
        self.acks: list[Ack] = []
        self.stopped = self.failed = False
        self.steps = 0
        self.status: int | None = 0

    def live(self, directory: Path, *, seed: int, **asked: object) -> None:
        """Begins a life; `asked` replaces what it does by default."""
        plain = {"kill_at": 0, "when": "before", "stop_at": 0, "groups": 1_000_000}
        plain |= {"segment_bytes": SEGMENT_BYTES, "flush": "always", "early": False}
        assert asked.keys() <= plain.keys()
        assert self.status is not None
        self.acks, self.steps, self.status, self._pid = [], 0, None, 0
        self.stopped = self.failed = False
        task = plain | asked | {"directory": str(directory), "seed": seed}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        self._process.stdin.flush()
        while not self._pid:
            self._take()

    def run(self, acks: int = 1 << 40) -> None:
        """Returns when so many acknowledgements came, when it stopped, or when it ended."""
        while len(self.acks) < acks and not self.stopped and self.status is None:
            self._take()
            assert not self.failed

    def kill(self) -> None:
        """Kills this life without notice; counts what it had said before."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
        while self.status is None:
            self._take()

    def close(self) -> None:
        """Ends the process."""
        self.kill()
        self._process.communicate()

    def _take(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the appender itself ended"
        word, *numbers = line.decode().split()
        values = [int(number) for number in numbers]
        if word == "ack":
            self.acks.append((values[0], values[1], values[2], values[3]))
        elif word == "stopped":
            self.stopped = True
        elif word == "failed":
            self.failed = True
        elif word == "life":
            self._pid = values[0]
        elif word == "steps":
            self.steps = values[0]
        else:
            self.status = values[0]


@pytest.fixture
def appender() -> Iterator[Appender]:
    made = Appender()
    yield made
    made.close()


@pytest.fixture
def judge_acks(faulty_files: Any, ledger: Any) -> Callable[[Path, Sequence[Ack]], Counter[str]]:
    """Recovers a store and counts acknowledged messages that are missing or not as they were.

    Offsets without gaps and whole batches are a matter of course.
    """

    def held(store: MessageStore) -> dict[tuple[int, int], tuple[int, int]]:
        found = {}
        for queue, _ in store.queues():
            batches = ledger.held(store, queue.queue_id).values()
            bodies = [body for batch in batches for body in batch]
            assert store.range(queue) == (0, len(bodies))
            for offset, body in enumerate(bodies):
                found[queue.queue_id, offset] = len(body), zlib.crc32(body)
        return found

    def judge(directory: Path, acks: Sequence[Ack]) -> Counter[str]:
        files = faulty_files()
        settings = StoreSettings(directory=directory, segment_bytes=SEGMENT_BYTES)
        store = MessageStore(settings, files=files)
        store.open()
        try:
            there = held(store)
            faults = Counter(damage=len(store.damage))
            for queue_id, offset, length, crc in acks:
                message = there.get((queue_id, offset))
                faults["lost_acks"] += message is None
                faults["wrong_bodies"] += message is not None and message != (length, crc)
            return +faults
        finally:
            # Not a clean end: the next one recovers again.
            files.abandon()

    return judge
