"""A group of brokers with one archive: every message once and in order, from the archive and the log, whoever leads."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.archive.claim import KeptArchive
from headrace_mq.broker.metadata import archive_file
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message
from headrace_mq.protocol.administration import ArchiveDescription
from headrace_mq.settings import ArchiveSettings, BrokerSettings, GroupSettings, StoreSettings
from tests.integration.mq.broker_group import (
    PATIENT,
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    a_moment,
    bodies_of,
    running,
)

# Several starts and failovers on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(600)

# Some hundred messages fill a segment.
PAD = b" " + b"x" * 400
ROUND = 2_000


async def send(group: Group, first: int) -> None:
    """Sends one round of messages, each of which is acknowledged."""
    async with Producer(group.address, settings=PATIENT) as producer:
        await producer.create_topic(TOPIC, queues=QUEUES)
        for start in range(first, first + ROUND, 100):
            numbers = range(start, start + 100)
            await producer.send_many(
                [Message(topic=TOPIC, body=b"%d%b" % (n, PAD), key=f"k{n % 7}") for n in numbers]
            )


async def until(holds: Callable[[], Awaitable[bool]], *, group: Group | None = None) -> None:
    try:
        async with asyncio.timeout(PATIENT_S):
            while not await holds():
                await a_moment()
    except TimeoutError:
        if group is None:
            raise
        pytest.fail(f"not in {PATIENT_S} s; the archive: {await described(group)}")


def first_held(folder: Path) -> int:
    """The log position where a broker's own log begins."""
    return min(int(path.stem) for path in (folder / "data" / "transient").glob("*.log"))


async def described(group: Group) -> ArchiveDescription:
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        (archive,) = (await admin.status()).archive
    return archive


async def is_archived(group: Group) -> bool:
    # An archive whose database answers late says so for a moment, and goes on.
    archive = await described(group)
    return archive.failure == "" and archive.waiting_bytes == 0


async def rows(url: str) -> dict[int, list[tuple[int, bytes]]]:
    """The archive's offsets and bodies, by queue."""
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT queue_id, queue_offset, body FROM archived_messages WHERE topic = $1"
            " ORDER BY queue_id, queue_offset", TOPIC,
        )  # fmt: skip
    finally:
        await connection.close()
    return {number: [row[1:] for row in found if row[0] == number] for number in range(QUEUES)}


async def check_whole(group: Group, count: int) -> None:
    """Readers get every message once, and those of each key in order."""
    numbers = [int(body.split()[0]) for body in await bodies_of(group.address)]
    assert sorted(numbers) == list(range(count))
    for key in range(7):
        own = [number for number in numbers if number % 7 == key]
        assert own == sorted(own)


async def test_every_message_is_read_once_and_in_order_after_the_loss_of_leaders_and_of_a_disk(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> None:
    url = postgres_database
    await upgrade(url, tree=ARCHIVE)
    options = ("--archive", url, "--archive-window", "0", "--retention-interval", "10ms")
    ports = {name: free_port() for name in "ab"}

    def member(name: str, *with_options: str) -> Member:
        return Member(tmp_path / name, f"127.0.0.1:{ports[name]}", url, *with_options)

    a, b = member("a", *options), member("b", *options)
    async with running(Group([a, b], url)) as group:
        await send(group, 0)

        async def both_deleted() -> bool:
            return await is_archived(group) and all(first_held(tmp_path / name) for name in "ab")

        await until(both_deleted, group=group)
        sending = asyncio.create_task(send(group, ROUND))
        await a_moment()
        await a.end()
        await sending
        await check_whole(group, 2 * ROUND)
        await until(lambda: is_archived(group), group=group)
        archived = await rows(url)
        for held in archived.values():
            assert [offset for offset, _ in held] == list(range(len(held)))
        assert sum(map(len, archived.values())) == 2 * ROUND

        # Without the archive it could not lead.
        forgetful = member("a")
        await forgetful.start()
        assert await forgetful._process.wait() != 0, forgetful.log()  # type: ignore[union-attr]  # it was started
        assert "name it with --archive" in forgetful.log()

        # A broker with an empty folder needs no segment that is archived.
        shutil.rmtree(tmp_path / "a" / "data")
        await a.start()
        await group.in_sync()
        assert first_held(tmp_path / "a") > 0
        await b.end(signal.SIGTERM)
        await check_whole(group, 2 * ROUND)
        await send(group, 2 * ROUND)
        await until(lambda: is_archived(group), group=group)
        await check_whole(group, 3 * ROUND)
        assert sum(map(len, (await rows(url)).values())) == 3 * ROUND
    for one in (a, b):
        assert "Traceback" not in one.log()


Start = Callable[..., Awaitable[ReplicatedBroker]]


@pytest.fixture
async def start(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Start]:
    """Starts brokers of one group in this process; the database of an archive does not answer."""
    record, made = MemoryRecord(), list[ReplicatedBroker]()

    async def run(name: str, *, has_archive: bool) -> ReplicatedBroker:
        url = f"postgresql://me@127.0.0.1:{free_port()}/x"
        settings = BrokerSettings(
            store=StoreSettings(directory=tmp_path / name, segment_bytes=64 * 1024),
            port=free_port(),
            archive=ArchiveSettings(url=url) if has_archive else None,
            group=GroupSettings(record="etcd://unused:1"),
        )
        made.append(ReplicatedBroker(settings, record=record))
        await made[-1].start()
        return made[-1]

    yield run
    for broker in made:
        await broker.aclose()


async def until_leading(broker: ReplicatedBroker) -> None:
    async with AdminClient(broker.address, timeout_ms=PATIENT_S * 1_000) as admin:
        assert (await admin.describe()).broker == broker.address


async def test_a_leader_whose_archive_is_away_serves_all_the_same(start: Start) -> None:
    broker = await start("a", has_archive=True)
    await until_leading(broker)
    async with Producer(broker.address, settings=PATIENT) as producer:
        await producer.send(Message(topic=TOPIC, body=b"1"))
    assert broker.state is not None
    archive = broker.state.archive
    assert archive is not None

    async def is_told() -> bool:
        return "does not answer" in archive.describe().failure

    await until(is_told)
    assert archive.describe().waiting_bytes > 0


async def test_a_broker_without_the_archive_of_its_group_ends_and_says_why(
    start: Start, tmp_path: Path
) -> None:
    leader = await start("a", has_archive=True)
    await until_leading(leader)
    replica = await start("b", has_archive=False)

    async def are_in_sync() -> bool:
        return len(leader.figures().in_sync) == 2

    await until(are_in_sync)
    archive_file(tmp_path / "a", leader._files).write(KeptArchive("mine", begun=True))
    with pytest.raises(MessageQueueError, match="start it again with --archive"):
        await asyncio.wait_for(asyncio.shield(replica.failure), PATIENT_S)
    await replica.aclose()
    async with Producer(leader.address, settings=PATIENT) as producer:
        await producer.send(Message(topic=TOPIC, body=b"1"))
