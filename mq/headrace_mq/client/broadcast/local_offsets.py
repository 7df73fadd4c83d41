"""
The offsets of a broadcast consumer, in a file of its own machine.

The file is always replaced as a whole. A damaged file is an error: the consumer does not silently
read from the beginning. A second process that opens the same file is refused. The file has two lines:

    headrace offsets 1 5f3c90aa
    {"group":"g","topics":{"t":{"0":17}},"epochs":{"t":{"0":3}}}

the name and version of the format with the CRC-32C of the second line, in hex, and the next offset
to read of each queue, with the epoch of its brokers; versions before that have no epochs, and read over them.

Used by `Consumer`; reads finished offsets from `fetch.assigned_queues`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
import msgspec

from headrace_mq._runtime.files import Files, SystemFiles, write_all
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.fetch.assigned_queues import AssignedQueues
from headrace_mq.client.fetch.start_offsets import KeptOffset
from headrace_mq.errors import DataCorrupt, FormatTooNew, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.settings import ConsumerSettings

__all__ = ["LocalOffsets"]

_NAME, _VERSION = b"headrace offsets ", 1

_log = get_logger(__name__)


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the file: topic -> queue number -> next offset to read, and the epoch; 0, or none: not known."""

    group: str
    topics: dict[str, dict[int, int]]
    epochs: dict[str, dict[int, int]] = {}


class LocalOffsets:
    """The offsets of one broadcast consumer.

    Args:
        path: the file; its folder must exist.
        shares: the consumer's queues.
        group: whose offsets; the file says so too.
        settings: how often they are written.
        files: the file system.
        epochs: by queue, that of its brokers since before the messages came that are finished now.
    """

    def __init__(
        self,
        path: Path,
        shares: AssignedQueues,
        *,
        group: str,
        settings: ConsumerSettings,
        files: Files | None = None,
        epochs: Mapping[QueueRef, int] | None = None,
    ) -> None:
        self._path = path
        self._shares = shares
        self._group = group
        self._settings = settings
        self._files = files or SystemFiles()
        self._epochs: Mapping[QueueRef, int] = {} if epochs is None else epochs
        self._offsets: dict[QueueRef, KeptOffset] = {}
        self._lock: int | None = None
        # One write at a time, so that an older one cannot end behind a newer one.
        self._turn = asyncio.Lock()

    def open(self) -> None:
        """Reads the file, if there is one, and keeps other processes from it.

        Raises:
            DataCorrupt, FormatTooNew: the file cannot be read; the sentence says what to do.
            MessageQueueError: the file cannot be used, another consumer uses it, or it is that of
                another group.
        """
        try:
            self._lock = self._files.open(
                self._path.with_name(self._path.name + ".lock"), create=True
            )
            self._require_lock(self._lock)
            self._offsets = self._read()
        except OSError as error:
            self.close()
            raise self._unusable(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets others have the file."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self._files.close(lock)

    async def load(self, queues: Sequence[QueueRef]) -> Mapping[QueueRef, KeptOffset]:
        """Where these queues go on, as far as the file says."""
        return {queue: self._offsets[queue] for queue in queues if queue in self._offsets}

    async def keep_committing(self) -> None:
        """Writes on the timer, for ever; failures wait for the next turn."""
        while True:
            await asyncio.sleep(self._settings.commit_interval_ms / 1_000)
            try:
                await self.commit()
            except MessageQueueError as error:
                _log.warning(
                    "offsets could not be written; the consumer tries again",
                    group=self._group,
                    reason=str(error),
                )

    async def commit(self) -> None:
        """Makes what is finished durable. Raises MessageQueueError: it could not be written."""
        async with self._turn:
            offsets = self._shares.to_commit()
            if not offsets:
                return
            # Of queues that have not moved, the messages are as old as before.
            after = self._offsets | {
                queue: KeptOffset(offset, self._epochs.get(queue, 0))
                for queue, offset in offsets.items()
            }
            topics: dict[str, dict[int, int]] = {}
            epochs: dict[str, dict[int, int]] = {}
            for queue, kept in sorted(after.items()):
                topics.setdefault(queue.topic, {})[queue.queue_id] = kept.offset
                if kept.epoch:
                    epochs.setdefault(queue.topic, {})[queue.queue_id] = kept.epoch
            content = msgspec.json.encode(_Kept(self._group, topics, epochs))
            try:
                await asyncio.to_thread(self._write, content)
            except OSError as error:
                raise self._unusable(error) from error
            self._offsets = after
            self._shares.committed(offsets)

    def _require_lock(self, lock: int) -> None:
        if not self._files.lock(lock):
            raise MessageQueueError(
                f"another consumer keeps its offsets in {self._path}; give each its own file"
            )

    def _read(self) -> dict[QueueRef, KeptOffset]:
        try:
            fd = self._files.open(self._path)
        except FileNotFoundError:
            return {}
        try:
            content = self._files.read(fd, 0, self._files.size(fd))
        finally:
            self._files.close(fd)
        try:
            kept = msgspec.json.decode(_checked(content, self._path), type=_Kept)
        except (ValueError, msgspec.DecodeError) as error:
            raise DataCorrupt(
                f"{self._path} is damaged ({error}); delete it to begin where the settings say, or"
                " restore it"
            ) from error
        if kept.group != self._group:
            raise MessageQueueError(
                f"{self._path} holds the offsets of group {kept.group!r}, not of {self._group!r};"
                " give each its own file"
            )
        return {
            QueueRef(topic, number): KeptOffset(offset, kept.epochs.get(topic, {}).get(number, 0))
            for topic, queues in kept.topics.items()
            for number, offset in queues.items()
        }

    def _write(self, payload: bytes) -> None:
        unfinished = self._path.with_name(self._path.name + ".new")
        fd = self._files.open(unfinished, create=True)
        try:
            write_all(self._files, fd, 0, [_head(payload), payload, b"\n"])
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._files.rename(unfinished, self._path)
        self._files.sync_directory(self._path.parent)

    def _unusable(self, error: OSError) -> MessageQueueError:
        return MessageQueueError(
            f"the offsets in {self._path} cannot be kept ({error.strerror or error}); check that its"
            " folder exists, the disk, and the rights"
        )


def _head(payload: bytes) -> bytes:
    return b"%s%d %08x\n" % (_NAME, _VERSION, google_crc32c.value(payload))


def _checked(content: bytes, path: Path) -> bytes:
    """Returns the second line. Raises FormatTooNew, and ValueError where it is damaged."""
    head, _, rest = content.partition(b"\n")
    version = head.removeprefix(_NAME).partition(b" ")[0]
    if head.startswith(_NAME) and version.isdigit() and int(version) > _VERSION:
        raise FormatTooNew(
            f"{path} has format {int(version)}, this version reads up to {_VERSION}; start the version"
            " that wrote it"
        )
    payload = rest.removesuffix(b"\n")
    if content != _head(payload) + payload + b"\n":
        raise ValueError("it fails its checksum")
    return payload
