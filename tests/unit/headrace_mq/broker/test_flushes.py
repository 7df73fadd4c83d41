"""What requests changed reaches the disk; one that refuses is told of once, and tried again."""

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.flushes import Flushes
from headrace_mq.broker.groups.offsets import Offsets
from headrace_mq.broker.metadata import offsets_file, producers_file
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.peers.producers import Producers
from headrace_mq.message import QueueRef

QUEUE = QueueRef("t", 0)


class Full(SystemFiles):
    """A disk that is full while it says so."""

    full = True

    def open(self, path: Path, *, create: bool = False) -> int:
        if create and self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create=create)


@pytest.fixture
def files() -> Full:
    return Full()


async def test_a_full_disk_is_told_of_once_and_everything_is_written_when_there_is_room(
    tmp_path: Path, files: Full
) -> None:
    offsets = Offsets(offsets_file(tmp_path, files))
    producers = Producers(producers_file(tmp_path, files))
    flushes = Flushes(offsets, producers)
    settled: list[OSError | None] = []
    offsets.commit("g", [(QUEUE, 5)])
    offsets.when_durable(settled.append)
    peer = Peer(client_id="me", address="10.0.0.1:1", software="x", since_ms=1)
    producers.meet(peer, 7)
    with capture_logs() as logs:
        for _ in range(3):
            await flushes.offsets()
            await flushes.producers()
    assert [log["event"].split(" could")[0] for log in logs] == [
        "committed offsets", "new producers",
    ]  # fmt: skip
    assert [getattr(error, "errno", None) for error in settled] == [errno.ENOSPC]
    files.full = False
    offsets.when_durable(settled.append)
    await flushes.offsets()
    await flushes.producers()
    await flushes.offsets()
    await flushes.producers()
    assert settled[1:] == [None]
    again = Offsets(offsets_file(tmp_path))
    again.load({QUEUE: 9})
    assert again.get("g", QUEUE) == 5
    known = Producers(producers_file(tmp_path))
    known.load()
    assert [one.client_id for one in known.describe([7])] == ["me"]
    files.full = True
    offsets.commit("g", [(QUEUE, 6)])
    with capture_logs() as logs:
        await flushes.offsets()
    assert len(logs) == 1
