"""Bytes rot on the disk of one broker of a group: readers get every message, and the file is sound again."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import METADATA
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.store.check.inspection import check
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES
from tests.integration.mq.broker_group import (
    PATIENT,
    QUEUES,
    TOPIC,
    Group,
    Member,
    bodies_of,
    running,
)

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)
# As `headrace`, but readers wait for a repair for as long as a busy machine takes.
PROGRAM = """
from headrace.cli import main
from headrace_mq.broker.replicas.repairs import repairs
vars(repairs).update(WAIT_MS_MAX=60_000, _HEARD_MS_MAX=60_000)
main()
"""
BODIES = [b"%03d " % number * 250 for number in range(60)]


@pytest.fixture
async def group(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[Group]:
    members = [
        Member(
            tmp_path / name, f"127.0.0.1:{free_port()}", postgres_database, program=("-c", PROGRAM)
        )
        for name in "ab"
    ]
    async with running(Group(members, postgres_database)) as made:
        yield made


def rot(folder: Path) -> int:
    """Changes a byte in every tenth message of the only segment; returns how many it changed."""
    (path,) = folder.glob("data/transient/*.log")
    with path.open("r+b") as file:
        content = file.read()
        places = [content.find(body[:8]) for body in BODIES[5::10]]
        assert min(places) > SEGMENT_HEADER_BYTES
        for place in places:
            file.seek(place + 40)
            file.write(bytes([content[place + 40] ^ 0x10]))
    return len(places)


async def test_readers_get_every_message_of_a_leader_whose_file_rots(
    group: Group, tmp_path: Path
) -> None:
    async with Producer(group.address, settings=PATIENT) as producer:
        await producer.create_topic(TOPIC, queues=QUEUES)
        for number, body in enumerate(BODIES):
            await producer.send(Message(topic=TOPIC, body=body, key=f"k{number}"))
    leader = await group.leader()
    folder = tmp_path / "ab"[group.members.index(leader)]
    assert rot(folder) == 6
    found = await bodies_of(group.address)
    assert sorted(found) == BODIES
    assert await group.leader() is leader
    assert leader.log().count("was repaired") == 6
    async with AdminClient(group.address) as admin:
        status = await admin.status()
    assert (status.repaired, status.unrepaired) == (6, 0)
    for member in group.members:
        await member.end()
    for name in "ab":
        report = check(tmp_path / name / "data", metadata=METADATA)
        assert report.status == "clean", report.findings
        assert sum(queue.records for queue in report.queues if queue.topic == TOPIC) == 60
