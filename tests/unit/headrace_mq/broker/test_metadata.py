"""The broker's own files: each is found, and says how it is repaired."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.archive.claim import KeptArchive
from headrace_mq.broker.files.epoch import KeptBroker
from headrace_mq.broker.groups.offsets import KeptOffsets, Offsets
from headrace_mq.broker.metadata import (
    METADATA,
    Flushes,
    archive_file,
    broker_file,
    limits_file,
    offsets_file,
    producers_file,
    releases_file,
    schedule_file,
    settings_in,
    topics_file,
    topics_from,
    transactions_file,
    users_file,
)
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.peers.producers import KeptProducers, Producers
from headrace_mq.broker.quotas.limits import KeptBacklog, KeptLimits
from headrace_mq.broker.schedule.entries import KeptSchedule
from headrace_mq.broker.topics.kept import KeptTopic, KeptTopics
from headrace_mq.broker.topics.releases import KeptReleases
from headrace_mq.broker.transactions.undecided import KeptTransactions
from headrace_mq.broker.users.user_book import KeptUser, KeptUsers
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.store.check.inspection import FoundQueue

FILES = [
    (broker_file, "broker.json", KeptBroker(1)),
    (topics_file, "topics.json", KeptTopics({})),
    (offsets_file, "offsets.json", KeptOffsets({})),
    (releases_file, "releases.json", KeptReleases()),
    (producers_file, "producers.json", KeptProducers([])),
    (schedule_file, "schedule.json", KeptSchedule(0, [], [], None)),
    (transactions_file, "transactions.json", KeptTransactions(0, [], [], None)),
    (users_file, "users.json", KeptUsers(b"")),
]


@pytest.mark.parametrize(("file", "name", "value"), FILES)
def test_each_file_is_listed_with_its_kind_and_what_its_loss_means(
    tmp_path: Path, file: Any, name: str, value: Any
) -> None:
    file(tmp_path).write(value)
    assert (tmp_path / "metadata" / name).exists()
    assert METADATA[f"metadata/{name}"].kind is type(value)


@pytest.mark.parametrize(("file", "name", "value"), FILES)
def test_a_damaged_file_names_the_commands_that_repair_it(
    tmp_path: Path, file: Any, name: str, value: Any
) -> None:
    file(tmp_path).write(value)
    (tmp_path / "metadata" / name).write_bytes(b"x")
    with pytest.raises(DataCorrupt, match=name) as caught:
        file(tmp_path).read()
    assert f"`headrace store check {tmp_path}`" in str(caught.value)
    assert f"`headrace store repair {tmp_path} --apply`" in str(caught.value)
    assert METADATA[f"metadata/{name}"].loss in str(caught.value)


def test_topics_are_made_again_from_the_queues_that_hold_messages() -> None:
    found = [
        FoundQueue(topic=topic, queue_id=queue, log=log, first=0, next=1, records=1)
        for topic, queue, log in [("a", 2, "forever"), ("a", 0, "forever"), ("b", 0, "transient")]
    ]
    made = msgspec.json.decode(topics_from(found), type=KeptTopics)
    assert made.topics == {"a": KeptTopic(3, "forever"), "b": KeptTopic(1, "transient")}


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


async def test_a_flush_during_another_one_keeps_those_that_wait_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a leader hands over while its timer flushes."""
    offsets = Offsets(offsets_file(tmp_path))
    flushes = Flushes(offsets, Producers(producers_file(tmp_path)))
    begun, go_on, write = asyncio.Event(), threading.Event(), offsets.write
    loop, told, written = asyncio.get_running_loop(), list[str](), list[bytes]()

    def slow(changes: bytes) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        write(changes)
        written.append(changes)

    def tell(word: str) -> Callable[[OSError | None], None]:
        return lambda _: told.append(f"{word} {len(written)}")

    monkeypatch.setattr(offsets, "write", slow)
    offsets.commit("g", [(QUEUE, 5)])
    offsets.when_durable(tell("first"))
    first = asyncio.create_task(flushes.offsets())
    await begun.wait()
    offsets.commit("g", [(QUEUE, 6)])
    offsets.when_durable(tell("second"))
    others = [asyncio.create_task(flushes.offsets()) for _ in range(2)]
    await asyncio.sleep(0)
    early = [one.done() for one in others]
    go_on.set()
    await asyncio.gather(first, *others)
    assert early == [False, False]
    assert told == ["first 1", "second 2"]
    assert len(written) == 2


async def test_a_full_disk_is_logged_once_and_all_is_written_when_there_is_room(
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


def test_a_folder_tells_what_it_holds_besides_messages(tmp_path: Path) -> None:
    assert settings_in(tmp_path) == []
    topics_file(tmp_path).write(KeptTopics({}))
    limits_file(tmp_path).write(KeptLimits())
    assert settings_in(tmp_path) == []
    topics_file(tmp_path).write(KeptTopics({"t": KeptTopic(1, "forever")}))
    limits_file(tmp_path).write(KeptLimits(backlogs={"g": KeptBacklog(1, "tell")}))
    users_file(tmp_path).write(KeptUsers(b"", {"root": KeptUser(admin=True)}))
    archive_file(tmp_path).write(KeptArchive("mine", begun=True))
    assert settings_in(tmp_path) == ["topics", "users", "limits", "an archive"]
