"""Users and rules at each step of a change: the power goes at each change of the disk, and brokers die by kill -9."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.access import Credentials, RuleEntry, SetUser
from headrace_mq.testing.simulated_disk import SimulatedDisk

DIRECTORY = Path("/broker")
SEEDS = 5
KILLS = 8
OLD = Credentials(b"s" * 32, b"k" * 32, b"v" * 32, 4_096)
NEW = Credentials(b"t" * 32, b"l" * 32, b"w" * 32, 4_096)
RULE = RuleEntry("ann", "publish", "topic:orders", True)

# Dies at a call of some function, counted from the next change of users or rules on.
BROKER = """
import os, signal, sys
from pathlib import Path
import structlog
from headrace_mq.broker.process import run
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.settings import BrokerSettings, StoreSettings
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
left = int(sys.argv[2])
def count(frame, event, argument):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def counted(change):
    def call(*arguments, **named):
        sys.setprofile(count if left else None)
        return change(*arguments, **named)
    return call
UserBook.change, UserBook.set_rule = counted(UserBook.change), counted(UserBook.set_rule)
store = StoreSettings(directory=Path(sys.argv[1]), segment_bytes=64 << 10)
settings = BrokerSettings(store=store, port=0, login=True)
run(settings, ready=lambda address: print(address, flush=True))
"""


def changes(book: UserBook) -> list[Callable[[], object]]:
    """A life of users, one change after the other."""
    return [
        lambda: book.change(SetUser("add", "root", [OLD], admin=1)),
        lambda: book.change(SetUser("add", "ann", [OLD], set_roles=True, roles=["clerks"])),
        lambda: book.set_rule(RULE, remove=False),
        lambda: book.set_rule(RuleEntry("role:clerks", "*", "group:*", False), remove=False),
        lambda: book.change(SetUser("change", "ann", [NEW])),
        lambda: book.change(SetUser("change", "ann", disabled=1)),
        lambda: book.set_rule(RULE, remove=True),
        lambda: book.change(SetUser("remove", "ann")),
    ]


def state(book: UserBook) -> tuple[object, ...]:
    names = [one.name for one in book.users()]
    return book.users(), book.rules(), [book.credentials(name) for name in names]


def opened(disk: SimulatedDisk) -> UserBook:
    files = disk.mount()
    if not files.exists(DIRECTORY):
        files.make_directory(DIRECTORY)
        files.sync_directory(Path("/"))
    book = UserBook(users_file(DIRECTORY, files))
    book.load()
    return book


class PowerCut(Exception):
    """The end of this machine."""


def cut_at(step: int, seed: int) -> bool:
    """Cuts the power at one change of the disk, and compares; returns whether the life was longer than that."""
    disk = SimulatedDisk(random.Random(seed))
    left = step

    def fault(_kind: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            disk.cut_power()
            raise PowerCut

    book = opened(disk)
    disk.fault = fault
    before, done = state(book), 0
    life = changes(book)
    try:
        for done, change in enumerate(life):  # noqa: B007 - how far it came
            before = state(book)
            change()
    except PowerCut:
        disk.fault = lambda _kind: None
        found = state(opened(disk))
        whole = opened_after(life_of=done + 1)
        assert found in (before, whole), (
            f"step {step}, seed {seed}: change {done} is neither old nor new"
        )
        return True
    assert state(opened(disk)) == state(book)
    return False


def opened_after(life_of: int) -> tuple[object, ...]:
    """The state after so many changes on a disk that never fails."""
    book = opened(SimulatedDisk(random.Random(0)))
    for change in changes(book)[:life_of]:
        change()
    return state(book)


def test_a_power_cut_at_any_change_of_the_disk_leaves_users_as_before_or_as_after() -> None:
    steps = 0
    for seed in range(SEEDS):
        step = 1
        while cut_at(step, seed):
            step += 1
        steps += step - 1
    assert steps >= SEEDS * len(changes(opened(SimulatedDisk(random.Random(0)))))


class Started:
    """A broker in a process of its own, that dies so many calls into a change."""

    def __init__(self, folder: Path, calls: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BROKER, str(folder), str(calls)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def wait(self) -> None:
        self._process.wait(60)

    def end(self) -> bool:
        """Stops it; returns whether it had been killed."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=120)
        return self._process.returncode == -signal.SIGKILL


async def survives(dead: asyncio.Task[None], work: Awaitable[object]) -> bool:
    """Does something unless the broker is dead before; returns whether it was done."""
    asked = asyncio.ensure_future(work)
    await asyncio.wait({asked, dead}, return_when=asyncio.FIRST_COMPLETED)
    if asked.done() and asked.exception() is None:
        return True
    asked.cancel()
    with suppress(asyncio.CancelledError, MessageQueueError):
        await asked
    return False


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_users_and_rules_that_were_acknowledged_hold_after_each_kill(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "root.txt"
    data.mkdir()
    file.write_text("a long pencil")
    file.chmod(0o600)
    add_user(data, "root", SecretStr("a long pencil"), admin=True)
    chance, killed, promised, tried = random.Random(7), 0, set[str](), set[str]()
    for kill in range(KILLS + 1):
        calls = chance.randrange(5, 400) if kill < KILLS else 0
        broker = await asyncio.to_thread(Started, data, calls)
        # One for all: each takes one of few threads.
        dead = asyncio.create_task(asyncio.to_thread(broker.wait))
        address = f"tcp://{broker.address}?user=root&password_file={file}"
        async with AdminClient(address, timeout_ms=60_000) as admin:
            users = {one.name for one in await admin.users()} - {"root"}
            rules = {one.subject for one in await admin.rules()}
            assert promised <= users | rules <= tried | {"root"}
            noted = {one.resource.removeprefix("user:") for one in await admin.audit(1_000)}
            assert promised <= noted
            for number in range(6):
                name = f"u{kill}-{number}"
                tried |= {name, f"role:{name}"}
                if not await survives(dead, admin.add_user(name, None)):
                    break
                promised.add(name)
                rule = admin.set_rule(f"role:{name}", "read", "cluster", allows=True)
                if not await survives(dead, rule):
                    break
                promised.add(f"role:{name}")
        killed += await asyncio.to_thread(broker.end)
        await dead
    assert killed >= KILLS // 2
