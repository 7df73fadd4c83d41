"""
The broker's own files in the store's directory: where they are, what they hold, when they are written.

Each is a `files.metadata_file` with one value. The commands that check and repair a directory find here
what may be in it, and how it is repaired. `Flushes` writes what requests change in memory.
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.claim import KeptArchive
from headrace_mq.broker.files.epoch import KeptBroker
from headrace_mq.broker.files.kept_group import KeptMember
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.groups.offsets import KeptOffsets, Offsets
from headrace_mq.broker.peers.producers import KeptProducers, Producers
from headrace_mq.broker.quotas.limits import KeptLimits
from headrace_mq.broker.schedule.entries import KeptSchedule
from headrace_mq.broker.topics.kept import KeptTopic, KeptTopics
from headrace_mq.broker.topics.releases import KeptReleases
from headrace_mq.broker.transactions.undecided import KeptTransactions
from headrace_mq.broker.users.user_book import KeptUsers
from headrace_mq.store.check.inspection import FoundQueue, MetadataKind
from headrace_mq.store.retention.timeline import KeptTimeline

__all__ = [
    "METADATA",
    "Flushes",
    "archive_file",
    "broker_file",
    "group_file",
    "limits_file",
    "offsets_file",
    "producers_file",
    "releases_file",
    "schedule_file",
    "settings_in",
    "timeline_file",
    "topics_file",
    "topics_from",
    "transactions_file",
    "users_file",
]

# Next to the store's own folders.
METADATA_FOLDER = "metadata"

_log = get_logger(__name__)


def topics_from(queues: Iterable[FoundQueue]) -> bytes:
    """Makes the content of `topics.json` from the queues that hold messages."""
    topics: dict[str, KeptTopic] = {}
    for queue in queues:
        known = topics.get(queue.topic, KeptTopic(0, queue.log))
        count = max(known.queues, queue.queue_id + 1)
        topics[queue.topic] = KeptTopic(count, known.retention)
    return msgspec.json.encode(KeptTopics(topics))


# By their path in the store's directory.
METADATA: Mapping[str, MetadataKind] = MappingProxyType(
    {
        f"{METADATA_FOLDER}/broker.json": MetadataKind(
            KeptBroker, "the epoch is then taken from the clock"
        ),
        f"{METADATA_FOLDER}/topics.json": MetadataKind(
            KeptTopics,
            "topics that hold messages are then found again, empty ones have to be created again",
            topics_from,
        ),
        f"{METADATA_FOLDER}/offsets.json": MetadataKind(
            KeptOffsets, "every group then begins where its consumers' settings say"
        ),
        f"{METADATA_FOLDER}/limits.json": MetadataKind(
            KeptLimits,
            "quotas, how far behind groups may be, and which groups are paused then have to be set again",
        ),
        f"{METADATA_FOLDER}/releases.json": MetadataKind(
            KeptReleases, "messages of topics kept forever then stay until they are released again"
        ),
        f"{METADATA_FOLDER}/producers.json": MetadataKind(
            KeptProducers, "where stored messages came from is then not told any more"
        ),
        f"{METADATA_FOLDER}/schedule.json": MetadataKind(
            KeptSchedule, "the schedule is then read from its journal, which takes longer"
        ),
        f"{METADATA_FOLDER}/transactions.json": MetadataKind(
            KeptTransactions, "transactions are then read from their journal, which takes longer"
        ),
        f"{METADATA_FOLDER}/timeline.json": MetadataKind(
            KeptTimeline, "no message is then older than the next start"
        ),
        f"{METADATA_FOLDER}/users.json": MetadataKind(
            KeptUsers, "users and their permissions then have to be set again"
        ),
        f"{METADATA_FOLDER}/group.json": MetadataKind(
            KeptMember,
            "this broker is then a new member of its group, and enters the set once it has caught up",
        ),
        f"{METADATA_FOLDER}/archive.json": MetadataKind(
            KeptArchive, "the messages in its archive are then out of reach of this broker"
        ),
    }
)


def broker_file(store: Path, files: Files | None = None) -> MetadataFile[KeptBroker]:
    """The file with the broker's last epoch, in the directory `store`."""
    file = f"{METADATA_FOLDER}/broker.json"
    return MetadataFile(store / file, KeptBroker, repair=_repair(store, file), files=files)


def topics_file(store: Path, files: Files | None = None) -> MetadataFile[KeptTopics]:
    """The file with the topics."""
    file = f"{METADATA_FOLDER}/topics.json"
    return MetadataFile(store / file, KeptTopics, repair=_repair(store, file), files=files)


def offsets_file(store: Path, files: Files | None = None) -> MetadataFile[KeptOffsets]:
    """The file with the groups' committed offsets."""
    file = f"{METADATA_FOLDER}/offsets.json"
    return MetadataFile(store / file, KeptOffsets, repair=_repair(store, file), files=files)


def limits_file(store: Path, files: Files | None = None) -> MetadataFile[KeptLimits]:
    """The file with the limits that were set while the broker ran."""
    file = f"{METADATA_FOLDER}/limits.json"
    return MetadataFile(store / file, KeptLimits, repair=_repair(store, file), files=files)


def releases_file(store: Path, files: Files | None = None) -> MetadataFile[KeptReleases]:
    """The file with what may go of topics kept forever."""
    file = f"{METADATA_FOLDER}/releases.json"
    return MetadataFile(store / file, KeptReleases, repair=_repair(store, file), files=files)


def producers_file(store: Path, files: Files | None = None) -> MetadataFile[KeptProducers]:
    """The file with the producers whose ids stand in messages."""
    file = f"{METADATA_FOLDER}/producers.json"
    return MetadataFile(store / file, KeptProducers, repair=_repair(store, file), files=files)


def schedule_file(store: Path, files: Files | None = None) -> MetadataFile[KeptSchedule]:
    """The file with the pending scheduled messages, so that a start need not read them all."""
    file = f"{METADATA_FOLDER}/schedule.json"
    return MetadataFile(store / file, KeptSchedule, repair=_repair(store, file), files=files)


def transactions_file(store: Path, files: Files | None = None) -> MetadataFile[KeptTransactions]:
    """The file with the undecided transactions, so that a start need not read all of them."""
    file = f"{METADATA_FOLDER}/transactions.json"
    return MetadataFile(store / file, KeptTransactions, repair=_repair(store, file), files=files)


def timeline_file(store: Path, files: Files | None = None) -> MetadataFile[KeptTimeline]:
    """The file with what was seen to age."""
    file = f"{METADATA_FOLDER}/timeline.json"
    return MetadataFile(store / file, KeptTimeline, repair=_repair(store, file), files=files)


def users_file(store: Path, files: Files | None = None) -> MetadataFile[KeptUsers]:
    """The file with users and rules."""
    file = f"{METADATA_FOLDER}/users.json"
    return MetadataFile(store / file, KeptUsers, repair=_repair(store, file), files=files)


def group_file(store: Path, files: Files | None = None) -> MetadataFile[KeptMember]:
    """The file with what a broker of a group remembers."""
    file = f"{METADATA_FOLDER}/group.json"
    return MetadataFile(store / file, KeptMember, repair=_repair(store, file), files=files)


def archive_file(store: Path, files: Files | None = None) -> MetadataFile[KeptArchive]:
    """The file with the name under which the store is archived."""
    file = f"{METADATA_FOLDER}/archive.json"
    return MetadataFile(store / file, KeptArchive, repair=_repair(store, file), files=files)


def settings_in(store: Path) -> list[str]:
    """Returns what a folder holds of its own besides messages: topics, users, limits, an archive.

    Raises:
        DataCorrupt: a file is damaged.
        FormatTooNew: a newer version wrote it.
    """
    topics, users, limits = (
        topics_file(store).read(),
        users_file(store).read(),
        limits_file(store).read(),
    )
    held = {
        "topics": topics is not None and bool(topics.topics),
        "users": users is not None and bool(users.users or users.rules),
        "limits": limits is not None and limits != KeptLimits(),
        "an archive": archive_file(store).read() is not None,
    }
    return [name for name, is_held in held.items() if is_held]


def _repair(store: Path, file: str) -> str:
    return (
        f"Restore it from a backup, or see what is damaged with `headrace store check {store}` and"
        f" move it away with `headrace store repair {store} --apply`: {METADATA[file].loss}."
    )


class Flushes:
    """Writes committed offsets and new producers; each flush does nothing where nothing changed.

    A disk that refuses is reported once, not each second, and asked again with the next flush.

    Args:
        offsets: of all groups.
        producers: those that stand in messages.
    """

    def __init__(self, offsets: Offsets, producers: Producers) -> None:
        self._offsets = offsets
        self._producers = producers
        self._refused: set[str] = set()
        # One write at a time: a timer flushes, and so does a leader that hands over.
        self._turn = asyncio.Lock()

    async def offsets(self) -> None:
        """Writes committed offsets; who waits for them hears how that went. On return none of before is on its way."""
        async with self._turn:
            await self._write_offsets()

    async def _write_offsets(self) -> None:
        changes = self._offsets.take_changes()
        if changes is None:
            return
        try:
            await asyncio.to_thread(self._offsets.write, changes)
        except OSError as error:
            self._offsets.settle(error)
            self._tell("committed offsets", "after a crash they are older", error)
        else:
            self._offsets.settle()
            self._refused.discard("committed offsets")

    async def producers(self) -> None:
        """Writes new producers."""
        changes = self._producers.take_changes()
        if changes is None:
            return
        try:
            await asyncio.to_thread(self._producers.write, changes)
        except OSError as error:
            self._tell("new producers", "a crash would forget them", error)
        else:
            self._refused.discard("new producers")

    def _tell(self, what: str, loss: str, error: OSError) -> None:
        if what not in self._refused:
            self._refused.add(what)
            _log.error(f"{what} could not be written; {loss}", reason=str(error))
