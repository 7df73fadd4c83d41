"""Without the extras, and with what macOS and Windows have: the parts that have to work there do."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_mq.testing import broker

EXTRAS = {"uvloop", "asyncpg", "pyspark", "starlette", "uvicorn", "lz4", "zstandard"}
POSIX = {"fcntl", "resource", "pwd", "grp", "termios", "uvloop"}
# Names of `os` that macOS lacks, and of those that Windows lacks.
LINUX_NAMES = {"fdatasync", "posix_fallocate", "posix_fadvise", "RWF_NOWAIT", "sched_getaffinity"}
UNIX_NAMES = LINUX_NAMES | {
    "pread", "pwrite", "preadv", "pwritev", "statvfs", "O_CLOEXEC", "O_DIRECTORY", "SEEK_DATA",
    "getuid", "geteuid", "getppid", "killpg", "sched_yield", "fork",
}  # fmt: skip
SURROUNDINGS = {
    "no extras": (EXTRAS, set[str]()),
    "macos": ({"uvloop"}, LINUX_NAMES),
    "windows": (POSIX, UNIX_NAMES),
}
SECONDS_MAX = 60

SHOP = """
import asyncio
from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent
from headrace import EventContext, Projection, Settings, applies
from pydantic import BaseModel

class Receive(Command):
    product_id: AggregateId
    pieces: int

class Received(DomainEvent):
    pieces: int

class Product(Aggregate):
    @applies
    def _received(self, event: Received) -> None:
        pass

class Row(BaseModel):
    product_id: str
    pieces: int

stock = Projection("stock", row=Row, key="product_id")

@stock.fold
def received(row: Row | None, event: Received, context: EventContext) -> Row:
    return Row(product_id=context.aggregate_id, pieces=event.pieces)

app = App("shop")
app.add(Product, stock)

@app.handles
async def receive(command: Receive, context: CommandContext) -> None:
    product = Product(command.product_id)
    product.record(Received(pieces=command.pieces))
    context.add(product)
"""
LOCAL = """
import asyncio
from shop import Receive, Settings, app, stock

async def main():
    files = Settings(event_store="sqlite:///events.db", read_models="sqlite:///read.db")
    async with app.run_local(files) as shop:
        result = await shop.bus.execute(Receive(product_id="tea", pieces=7))
        await shop.seen(stock, result)
        print(await shop.read(stock).get("tea"))

asyncio.run(main())
"""
CLIENT = """
import asyncio, sys
from headrace_mq import Consumer, Message, Producer

async def main(address):
    async with Producer(address) as producer:
        await producer.send(Message(topic="orders", key="ann", body=b"tea"))
    async with Consumer(address, group="kitchen", topics=["orders"]) as consumer:
        while not (records := await consumer.poll()):
            pass
        print(records[0].body)

asyncio.run(main(sys.argv[1]))
"""
COMMAND = """
import asyncio, sys
from shop import Receive, Settings, app

async def main(address):
    async with app.client(Settings(broker=address)) as bus:
        print((await bus.execute(Receive(product_id="tea", pieces=7))).status)

asyncio.run(main(sys.argv[1]))
"""
Start = Callable[..., "subprocess.Popen[str]"]


def ended(process: "subprocess.Popen[str]") -> str:
    output, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors
    return output


@pytest.fixture(autouse=True)
def _application(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_an_application_runs_in_one_process(start: Start, surroundings: str) -> None:
    refused, missing = SURROUNDINGS[surroundings]
    assert ended(start("-c", LOCAL, refused=refused, missing=missing)) == (
        "product_id='tea' pieces=7\n"
    )


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
async def test_a_client_reaches_a_broker(start: Start, surroundings: str) -> None:
    refused, missing = SURROUNDINGS[surroundings]
    async with broker() as address:
        client = start("-c", CLIENT, address, refused=refused, missing=missing)
        assert await asyncio.to_thread(ended, client) == "b'tea'\n"


@pytest.mark.parametrize("surroundings", ["no extras", "macos"])
def test_a_broker_and_a_service_work(
    start: Start, surroundings: str, free_port: Callable[[], int]
) -> None:
    refused, missing = SURROUNDINGS[surroundings]
    address = f"127.0.0.1:{free_port()}"

    def headrace(*arguments: str) -> "subprocess.Popen[str]":
        process = start("-m", "headrace", *arguments, refused=refused, missing=missing)
        assert process.stdout is not None
        assert "ready" in process.stdout.readline(), process.communicate()[1]
        return process

    servers = []
    try:
        servers.append(headrace("broker", "--data", "broker", "--port", address.split(":")[1]))
        servers.append(
            headrace("run", "shop:app", "--broker", address, "--event-store", "sqlite:///e.db")
        )
        sent = start("-c", COMMAND, address, refused=refused, missing=missing)
        assert ended(sent) == "executed\n"
    finally:
        for server in reversed(servers):
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate(timeout=SECONDS_MAX)
            assert server.returncode == 0, errors


def test_a_broker_on_windows_is_one_sentence(start: Start) -> None:
    process = start("-m", "headrace", "broker", refused=POSIX, missing=UNIX_NAMES)
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2, errors
    assert errors == (
        "headrace: a broker needs Linux or macOS; here clients work, and App.run_local() needs no"
        " broker\n"
    )


def test_a_database_without_its_driver_is_one_sentence(start: Start) -> None:
    arguments = ["run", "shop:app", "--event-store", "postgresql://me@host/shop"]
    process = start("-m", "headrace", *arguments, refused=EXTRAS, missing=set())
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2, errors
    assert errors == (
        "headrace: a postgresql:// URL needs asyncpg: pip install 'headrace[postgres]'\n"
    )
