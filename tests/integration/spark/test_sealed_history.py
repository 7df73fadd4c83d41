"""Sealed history over a real broker and both databases: kills, tampering, a store that was changed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table
from sqlalchemy import text
from typer.testing import CliRunner

from headrace.cli.application.history import commands
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.events.seals import Seal
from headrace.spark.analysis.export import export_events
from headrace.spark.archive import exported_parts
from headrace.spark.history.record import read_record
from headrace.spark.history.seal import Sealing, Verified, seal_history, sealing, verify_history
from headrace.stores.base import EventStore
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP, TOPIC = "ledger_app:app", "ledger.events"


@dataclass
class World:
    """A broker, an event store, and what publishes to both as the framework does."""

    ledger: Any
    broker: str
    url: str
    store: EventStore
    folder: Path

    async def publish(self, streams: Sequence[EventStream], *, store: bool = True) -> None:
        if store:
            await self.store.append([one for one in streams if one.version is not None])
        put_on = Seal(await self.store.identity()).put_on
        encode = self.ledger.app.serializer.encode_stream
        await self.send([(one.aggregate_id, put_on(encode(one))) for one in streams])

    async def send(self, bodies: Sequence[tuple[str, bytes]]) -> None:
        async with Producer(self.broker) as producer:
            await producer.create_topic(TOPIC, queues=3, retention="forever")
            headers = {"kind": "events"}
            await producer.send_many(
                [Message(topic=TOPIC, key=key, headers=headers, body=body) for key, body in bodies]
            )

    async def seal(self) -> Sealing:
        def work() -> Sealing:
            with sealing(self.folder):
                return seal_history(APP, self.folder, broker=self.broker, event_store_url=self.url)

        return await asyncio.to_thread(work)

    async def verify(self) -> Verified:
        return await asyncio.to_thread(verify_history, APP, self.folder, event_store_url=self.url)

    async def change_store(self, sql: str) -> None:
        engine = create_engine(self.url)
        async with engine.begin() as connection:
            await connection.execute(text(sql))
        await engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def event_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'events.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
async def world(
    ledger: Any, broker: Any, event_store_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    await upgrade(event_store_url)
    store = await open_event_store(event_store_url, ledger.app.serializer)
    yield World(ledger, broker.address, event_store_url, store, tmp_path / "history")
    await store.aclose()


def accepted(history: Sequence[EventStream]) -> list[EventStream]:
    return [one for one in history if one.version is not None]


async def test_parts_are_sealed_one_after_the_other_and_foreign_messages_are_named(
    world: World, make_history: Any
) -> None:
    first, second = (accepted(make_history(9, 3, first=n, seed=n)) for n in (1, 4))
    await world.publish(first)
    sealed = await world.seal()
    assert ([each.part for each in sealed.sealed], sealed.differences) == ([1], [])
    assert sealed.sealed[0].messages == len(first)
    assert sealed.sealed[0].store == (await world.store.identity()).id
    assert (await world.seal()).sealed == []

    await world.publish(first[:2], store=False)
    await world.publish(second)
    await world.send([("a1", b'{"aggregate_id":"a1","command_id":"x"}'), ("who", b"no event")])
    # What an export has written is sealed as well.
    await asyncio.to_thread(
        export_events, APP, world.folder, broker=world.broker, event_store_url=world.url
    )
    sealed = await world.seal()
    assert [(each.part, each.messages, each.foreign) for each in sealed.sealed] == [
        (2, len(second) + 4, 2)
    ]
    assert sorted(note.partition(": ")[2] for note in sealed.notes)[:2] == [
        "'a1', command 'x': the event store does not vouch for it",
        "'who', command '': the event store does not vouch for it",
    ]
    found = await world.verify()
    assert (found.parts, found.sealed, found.foreign, found.differences) == (2, 2, 2, [])
    assert found.messages == len(first) + len(second) + 4


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "UPDATE event_streams SET body = replace(body, '\"amount\"', '\"amounts\"')",
            "not what was stored: its checksum differs",
        ),
        (
            "UPDATE event_streams SET checksum = NULL, body = replace(body, 'note 2', 'note 9')",
            "holds another stream",
        ),
        ("DELETE FROM event_streams WHERE aggregate_id = 'a2'", "has no such stream"),
    ],
)
async def test_a_store_that_was_changed_is_named_and_seals_nothing(
    world: World, make_stream: Any, sql: str, says: str
) -> None:
    booked, noted = world.ledger.Booked(partner="p", amount=5), world.ledger.Noted(text="note 2")
    await world.publish([make_stream("a1", 1, booked), make_stream("a2", 1, booked, noted)])
    assert len((await world.seal()).sealed) == 1
    await world.change_store(sql)
    found = await world.verify()
    assert any("'a2'" in each and says in each for each in found.differences), found
    await world.publish([make_stream("a3", 1, booked), make_stream("a4", 1, booked)])
    await world.change_store("DELETE FROM event_streams WHERE aggregate_id = 'a4'")
    sealed = await world.seal()
    assert sealed.sealed == []
    assert any("'a4', command 'a4-1': the event store has no" in n for n in sealed.differences)
    assert [read_record(world.folder, n) is None for n in (1, 2)] == [False, True]


async def test_a_flipped_byte_in_any_file_of_a_part_is_named(
    world: World, make_history: Any, cli: Any
) -> None:
    await world.publish(accepted(make_history(4, 2)))
    await world.seal()
    part = world.folder / "export-000001"
    chance = random.Random(5)
    files = [*sorted(part.rglob("*.parquet")), part / "export.json", part / "sealed.json"]
    assert len(files) > 6
    for file in files:
        whole = file.read_bytes()
        place = chance.randrange(len(whole))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        # Of what says that a part is sealed, some bytes are only told to people.
        if file.name != "sealed.json":
            found = await world.verify()
            assert any(str(part) in each for each in found.differences), file
        file.write_bytes(whole)
    done = await cli("verify", "--event-store", world.url)
    assert done.exit_code == 0, done.output
    files[0].write_bytes(b"")
    done = await cli("verify", "--event-store", world.url)
    assert (done.exit_code, str(files[0]) in done.output) == (1, True)


@pytest.fixture
def cli(world: World) -> Callable[..., Any]:
    async def run(name: str, *options: str) -> Any:
        arguments = [name, str(world.folder), *options]
        if name != "list":
            arguments += ["--app", APP]
        return await asyncio.to_thread(CliRunner().invoke, commands, arguments)

    return run


async def test_the_command_line_seals_and_lists(world: World, make_history: Any, cli: Any) -> None:
    await world.publish(accepted(make_history(3, 2)))
    both = ("--event-store", world.url, "--broker", world.broker)
    done = await cli("seal", *both)
    assert "part 1 of" in done.output, done.output
    assert "holds everything already, in 1 parts" in (await cli("seal", *both)).output
    assert json.loads((await cli("seal", "--json", *both)).output)["parts"] == 1
    listed = json.loads((await cli("list", "--json")).output)
    assert (listed["part"], listed["messages"], listed["topic"]) == (1, 6, TOPIC)
    heads, row = (await cli("list")).output.splitlines()
    assert (heads.split()[:2], row.split()[:2]) == (["part", "messages"], ["1", "6"])
    assert (await cli("seal", "--every", "0", *both)).exit_code == 2
    with sealing(world.folder):
        error = (await cli("seal", *both)).exception
    assert isinstance(error, ProjectionError)
    assert "another process seals" in str(error)


# Kills itself at a call of some function, chosen at random; only what Headrace itself does counts.
KILLED = """
import os, random, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[5])
from headrace.spark.history import seal
left = int(sys.argv[4])
def count(frame, event, argument):
    global left
    left -= event == "call"
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
folder = Path(sys.argv[2])
with seal.sealing(folder):
    sys.setprofile(count)
    seal.seal_history("ledger_app:app", folder, broker=sys.argv[1], event_store_url=sys.argv[3])
    sys.setprofile(None)
print("sealed")
"""


@pytest.mark.parametrize("event_store_url", ["sqlite"], indirect=True)
async def test_kill_9_at_any_moment_leaves_every_event_in_one_part(
    world: World, make_history: Any, event_store_url: str
) -> None:
    chance, kills, published = random.Random(11), 0, []
    for number in range(5):
        some = accepted(make_history(7, 2, first=1 + 2 * number, seed=number))
        await world.publish(some)
        published += some
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", KILLED, world.broker, str(world.folder), world.url,
             str(chance.randrange(2_000, 60_000)), str(Path(__file__).parent)],
            capture_output=True, text=True, timeout=100, check=False, env=os.environ,
        )  # fmt: skip
        assert done.returncode in {0, -9}, done.stderr
        kills += done.returncode == -9
    assert kills >= 2
    assert (await world.seal()).differences == []
    parts = exported_parts(world.folder)
    assert all(read_record(world.folder, each.number) for each in parts)
    found = await world.verify()
    assert (found.differences, found.messages) == ([], len(published))
    contexts: Counter[tuple[str, int, int]] = Counter()
    for file in world.folder.glob("export-*/events/*/*.parquet"):
        for context in read_table(file)["context"].to_pylist():
            contexts[context["aggregate_id"], context["version"], context["sequence"]] += 1
    expected = [
        (context.aggregate_id, context.version, context.sequence)
        for one in published
        for _, context in one.contexts()
    ]
    assert contexts == Counter(expected)


@pytest.mark.parametrize("event_store_url", ["sqlite"], indirect=True)
async def test_sealing_again_and_again_outlives_a_restart_of_the_broker_and_ends_on_sigterm(
    world: World, make_history: Any, broker: Any, event_store_url: str, child_environment: Any
) -> None:
    first, second = (accepted(make_history(5, 2, first=n, seed=n)) for n in (1, 3))
    await world.publish(first)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", "history", "seal", str(world.folder), "--app", APP,
        "--broker", world.broker, "--event-store", world.url, "--every", "100ms", "--json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment,
    )  # fmt: skip
    assert process.stdout is not None

    async def next_part() -> Any:
        assert process.stdout is not None
        while True:
            told = json.loads(await process.stdout.readline())
            if told["sealed"]:
                return told["sealed"][0]

    assert (await next_part())["messages"] == len(first)
    await asyncio.to_thread(broker.stop)
    broker.start()
    await world.publish(second)
    record = await next_part()
    assert (record["part"], record["messages"]) == (2, len(second))
    process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert b"headrace history ready" in errors
    assert b"Traceback" not in errors
    assert (await world.verify()).differences == []
