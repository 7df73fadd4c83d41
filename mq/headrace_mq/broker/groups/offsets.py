"""
How far each consumer group has come in each queue; durable within `offsets_flush_ms`.

A crash may take the last commits: their messages are delivered again, none is lost. A member's
commit never moves an offset back, so that a late one from a former owner changes nothing.

Used by the handlers; kept in a `files.metadata_file`. It never knows connections or members.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.groups.last_resets import NEVER, KeptReset, LastResets
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import QueueRef

__all__ = ["NEVER", "OFFSETS_MAX", "OFFSETS_PER_GROUP_MAX", "KeptOffsets", "Offsets"]

# Takes None when a write ended well, or what went wrong with it.
Settled = Callable[[OSError | None], None]

# Over all groups: the file is written as a whole, and 200,000 entries are about 6 MiB.
OFFSETS_MAX = 200_000
# A group's offsets are moved and deleted together, in some ten milliseconds of the loop's time.
OFFSETS_PER_GROUP_MAX = 8_192

_log = get_logger(__name__)


class KeptOffsets(msgspec.Struct, frozen=True):
    """The content of `offsets.json`: group -> topic -> queue number -> next offset to read; and groups' last moves."""

    groups: dict[str, dict[str, dict[int, int]]]
    resets: dict[str, KeptReset] = {}


def _by_topic(offsets: Mapping[QueueRef, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for queue, offset in offsets.items():
        topics.setdefault(queue.topic, {})[queue.queue_id] = offset
    return topics


class Offsets:
    """The committed offsets of all groups.

    Args:
        file: where they are kept.

    Attributes:
        resets: where groups stood before operators moved them.
    """

    def __init__(self, file: MetadataFile[KeptOffsets]) -> None:
        self._file = file
        self.resets = LastResets()
        self._groups: dict[str, dict[QueueRef, int]] = {}
        # The same by queue: who stands where in one is asked however many other groups there are.
        self._readers: dict[QueueRef, dict[str, int]] = {}
        self._count = 0
        # Groups that changed since the last write, and what the file says of each group: it is written
        # as a whole, but only what changed is put into words again.
        self._changed: set[str] = set()
        self._words: dict[str, msgspec.Raw] = {}
        self._dirty = False
        # Who waits for the next write, and who for the one under way.
        self._waiting: list[Settled] = []
        self._written: list[Settled] = []
        self._writing = False

    def load(self, ends: Mapping[QueueRef, int]) -> None:
        """Reads the file; offsets beyond a queue's end are put back to it, loudly.

        Offsets of queues that do not exist are dropped: a crash came between the deletion of a queue
        and that of its offsets.

        Args:
            ends: the next readable offset of each queue that exists.

        Raises:
            DataCorrupt: the file is damaged.
            FormatTooNew: a newer version wrote the file.
        """
        kept = self._file.read()
        if kept is None:
            self._dirty = True
            return
        self.resets.load(kept.resets, ends)
        for group, topics in kept.groups.items():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    queue = QueueRef(topic, queue_id)
                    if queue in ends:
                        self._set(group, queue, self._within(group, queue, offset, ends[queue]))
                    else:
                        self._dirty = True
                        _log.warning(
                            "a committed offset was dropped: its queue does not exist",
                            group=group, topic=topic, queue_id=queue_id, offset=offset,
                        )  # fmt: skip

    def get(self, group: str, queue: QueueRef) -> int:
        """Returns the next offset the group will read, or NEVER."""
        return self._groups.get(group, {}).get(queue, NEVER)

    def consumed(self, queue: QueueRef) -> int:
        """Returns the offset that every group of the queue has reached; 0 where there is none.

        A queue without readers counts as not consumed at all: its reader may be late.
        """
        readers = self._readers.get(queue)
        return min(readers.values()) if readers else 0

    def commit(
        self,
        group: str,
        offsets: Iterable[tuple[QueueRef, int]],
        *,
        backwards: bool = False,
        may_make: Callable[[int], None] | None = None,
    ) -> None:
        """Moves a group on; lower offsets are ignored unless `backwards` is set.

        Args:
            group: its name.
            offsets: the next offset it will read of each of these queues.
            backwards: whether it may be moved back.
            may_make: called with the number of queues it had no offset of, if any; its error is
                raised, and nothing was changed.

        Raises:
            InvalidArgument: the broker keeps as many offsets as it can, or as many of this group;
                nothing was changed.
        """
        held = self._groups.get(group, {})
        moves = [
            (queue, offset)
            for queue, offset in offsets
            if (backwards and offset != held.get(queue)) or offset > held.get(queue, NEVER)
        ]
        new = len({queue for queue, _ in moves if queue not in held})
        if self._count + new > OFFSETS_MAX:
            raise InvalidArgument(
                f"the broker keeps at most {OFFSETS_MAX} offsets over all groups; use fewer groups,"
                " or another broker"
            )
        if new and len(held) + new > OFFSETS_PER_GROUP_MAX:
            raise InvalidArgument(
                f"a group has offsets in at most {OFFSETS_PER_GROUP_MAX} queues, {group!r} would have"
                f" {len(held) + new}; divide its topics among several groups"
            )
        if new and may_make is not None:
            may_make(new)
        for queue, offset in moves:
            self._set(group, queue, offset)

    def behind(self, queue: QueueRef, end: int) -> list[tuple[str, int]]:
        """Returns the groups that committed a lower offset than `end`, with it, in no order."""
        return [one for one in self._readers.get(queue, {}).items() if one[1] < end]

    def names(self) -> Collection[str]:
        """The groups that have offsets, in no certain order; a view, not to be changed."""
        return self._groups.keys()

    def topics_of(self, group: str) -> set[str]:
        """Returns the topics that a group committed offsets in."""
        return {queue.topic for queue in self._groups.get(group, ())}

    def of(self, group: str) -> Mapping[QueueRef, int]:
        """Returns all offsets of a group, queues in order; empty where it committed none."""
        return dict(sorted(self._groups.get(group, {}).items()))

    def leave(self, group: str, queues: Collection[QueueRef]) -> None:
        """Drops a group's offsets of queues; without any offset a group is gone."""
        offsets = self._groups.get(group, {})
        for queue in queues:
            if offsets.pop(queue, None) is not None:
                self._count -= 1
                self._changed.add(group)
                self._lost(queue, group)
        if not offsets:
            self._groups.pop(group, None)

    def forget(self, queues: Collection[QueueRef]) -> None:
        """Drops every group's offsets of queues."""
        self.resets.forget(queues)
        for queue in queues:
            for group in self._readers.pop(queue, ()):
                offsets = self._groups[group]
                del offsets[queue]
                self._count -= 1
                self._changed.add(group)
                if not offsets:
                    del self._groups[group]

    def when_durable(self, settled: Settled) -> None:
        """Calls back when everything committed so far is on disk, or could not be written."""
        if self._dirty or self._changed:
            self._waiting.append(settled)
        elif self._writing:
            self._written.append(settled)
        else:
            settled(None)

    def settle(self, error: OSError | None = None) -> None:
        """Tells those who waited how the write of the taken changes ended."""
        written, self._written, self._writing = self._written, [], False
        for settled in written:
            settled(error)

    def take_changes(self) -> bytes | None:
        """Returns what `write` shall put on disk, or None where nothing changed since.

        `settle` must follow the write.
        """
        if not (self._dirty or self._changed):
            return None
        for group in self._changed:
            offsets = self._groups.get(group)
            if offsets is None:
                self._words.pop(group, None)
            else:
                self._words[group] = msgspec.Raw(msgspec.json.encode(_by_topic(offsets)))
        self._changed.clear()
        self._dirty, self._writing = False, True
        self._written, self._waiting = self._waiting, []
        resets = msgspec.Raw(self.resets.encoded())
        return msgspec.json.encode({"groups": self._words, "resets": resets})

    def write(self, changes: bytes) -> None:
        """Makes the taken changes durable; may run in another thread, one at a time.

        Raises OSError; the changes are then taken again with the next ones.
        """
        try:
            self._file.write_encoded(changes)
        except OSError:
            self._dirty = True
            raise

    def _set(self, group: str, queue: QueueRef, offset: int) -> None:
        offsets = self._groups.setdefault(group, {})
        if queue not in offsets:
            self._count += 1
        offsets[queue] = offset
        self._readers.setdefault(queue, {})[group] = offset
        self._changed.add(group)

    def _lost(self, queue: QueueRef, group: str) -> None:
        readers = self._readers[queue]
        del readers[group]
        if not readers:
            del self._readers[queue]

    def _within(self, group: str, queue: QueueRef, offset: int, end: int) -> int:
        if offset <= end:
            return offset
        # Possible with flush="interval" after a power cut: the messages are gone, and an offset
        # that stays ahead would make the group skip as many new ones.
        _log.error(
            "a committed offset was beyond its queue's end; it is now at the end",
            group=group, topic=queue.topic, queue_id=queue.queue_id, offset=offset, end=end,
        )  # fmt: skip
        return end
