"""Real processes with the most permissive umask: none of their files is for other users."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace_mq import Consumer, ConsumerSettings, Message, Producer

SECONDS_MAX = 60
SHOP = """
from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, Projection
from headrace import EventContext, applies
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
SEND = """
import asyncio, sys
from headrace import Settings
from shop import Receive, app, stock

async def main(address, read_models):
    async with app.client(Settings(broker=address, read_models=read_models)) as bus:
        result = await bus.execute(Receive(product_id="tea", pieces=7), wait_for=[stock])
        print(result.status)

asyncio.run(main(*sys.argv[1:]))
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Python with umask 0, in a folder with the module `shop`; ends it with the test."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "shop.py").write_text(SHOP, encoding="utf-8")
    (tmp_path / "code" / "send.py").write_text(SEND, encoding="utf-8")
    with ExitStack() as ends:

        def begin(*arguments: str) -> "subprocess.Popen[str]":
            environment = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=tmp_path, env=environment, umask=0, text=True,
                stdout=subprocess.PIPE,
            )  # fmt: skip
            ends.callback(_end, process)
            return process

        yield begin


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def for_others(folder: Path) -> dict[str, str]:
    """What users other than the owner may do with anything in a folder, and with itself."""
    modes = {str(each): stat.S_IMODE(each.lstat().st_mode) for each in (folder, *folder.rglob("*"))}
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


async def test_every_file_of_a_broker_and_an_application_is_private(
    start: Start, tmp_path: Path
) -> None:
    data, databases = tmp_path / "data" / "broker", tmp_path / "databases"
    broker = start(
        "-m", "headrace", "broker", "--data", str(data), "--port", "0", "--segment-size", "1MiB"
    )
    address = first_line(broker).rpartition(" ")[2]
    stores = [
        "--event-store", f"sqlite:///{databases}/events.db",
        "--read-models", f"sqlite:///{databases}/read.db",
    ]  # fmt: skip
    service = start("-m", "headrace", "run", "shop:app", "--broker", address, *stores)
    assert first_line(service) == "headrace run ready"
    client = start(str(tmp_path / "code" / "send.py"), address, f"sqlite:///{databases}/read.db")
    assert first_line(client) == "executed"

    offsets = tmp_path / "offsets"
    await asyncio.to_thread(offsets.mkdir, mode=0o700)
    await _use(address, offsets)
    assert for_others(data.parent) == {}
    assert for_others(databases) == {}
    _end(service)
    _end(broker)
    # Also what is written at the end.
    made = [each for each in data.rglob("*") if each.is_file()]
    assert len(made) > 10
    assert for_others(data.parent) == {}
    assert sorted(each.name for each in databases.iterdir()) == ["events.db", "read.db"]
    assert for_others(databases) == {}


async def _use(address: str, offsets: Path) -> None:
    """Has the broker keep what it keeps in files of its own: offsets, schedules, compacted topics."""
    async with Producer(address) as producer:
        await producer.create_topic("kept", queues=1, retention="compact")
        for topic in ("orders", "kept"):
            await producer.send(Message(topic=topic, key="ann", body=b"tea"))
        await producer.schedule(
            Message(topic="orders", key="ann", body=b"milk"), delay_ms=86_400_000
        )
    for settings in (ConsumerSettings(), ConsumerSettings(broadcast_file=offsets / "broadcast")):
        before = os.umask(0)
        try:
            async with Consumer(
                address, group="kitchen", topics=["orders"], settings=settings
            ) as consumer:
                while not (records := await consumer.poll()):
                    pass
                for record in records:
                    consumer.ack(record)
        finally:
            os.umask(before)
    assert for_others(offsets) == {}
