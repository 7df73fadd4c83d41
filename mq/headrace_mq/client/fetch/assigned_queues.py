"""
The queues a consumer holds: for each its position, and what is buffered, in flight and committed.

A queue is *assigned* by the group, *started* once its offset is known, and *suspended* while the
consumer cannot know whether the group still counts on it (the connection is lost): a suspended
queue is neither fetched nor delivered, and resumes where it stood unless another member went on
from there. A *revoked* queue is kept while attempts on it go on, so that what they finish is still
committed. An `AssignedQueue` is replaced, never reset, so a part that holds an old one can see that.

Used by `Consumer`, `PullConsumer` and their parts, which fetch, deliver, acknowledge and commit. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from headrace_mq.client.fetch.damage import DamageLog
from headrace_mq.client.fetch.flow_control import Allowance, divided
from headrace_mq.client.fetch.process_queue import ProcessQueue, WindowLimits
from headrace_mq.client.fetch.queue_priorities import Urgency
from headrace_mq.client.fetch.record_columns import RecordColumns, from_records
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

__all__ = ["AssignedQueue", "AssignedQueues", "limits_of"]


def limits_of(settings: ConsumerSettings) -> WindowLimits:
    """The limits of one queue's window."""
    return WindowLimits(
        settings.in_flight_max, settings.in_flight_bytes_max, settings.in_flight_span_max
    )


class AssignedQueue:
    """One started queue.

    Attributes:
        queue: the queue.
        window: taken and unfinished offsets; its end is where reading goes on.
        ready: records taken and not yet delivered.
        columns: the same where they are to be delivered as columns.
        asked: the number of the fetch that asks for this queue, or None.
        suspended: neither fetched nor delivered until `AssignedQueues.start`.
        sought: the application chose the offset; a loaded one must not overrule it.
        committed: the last offset the broker is known to hold, or -1.
        full: the window has reached a limit; no fetch asks for more.
        held: some of what is buffered waits until others are finished, and that was not told yet.
        alone: fetched by itself, to tell whether its batches are the ones that cannot be read.
        damaged: a batch here cannot be read; only a new share goes on.
    """

    __slots__ = (
        "alone",
        "asked",
        "columns",
        "committed",
        "damaged",
        "full",
        "held",
        "queue",
        "ready",
        "sought",
        "suspended",
        "window",
    )

    def __init__(self, queue: QueueRef, offset: int, *, committed: int = -1) -> None:
        self.queue = queue
        self.window = ProcessQueue(offset)
        self.ready: list[Record] = []
        self.columns: list[RecordColumns] = []
        self.asked: int | None = None
        self.suspended = False
        self.sought = False
        self.committed = committed
        self.full = False
        self.held = False
        self.alone = False
        self.damaged = False


class AssignedQueues:
    """All queues of one consumer.

    Args:
        limits: of the unfinished records of a queue: from these on it is not fetched, and what a fetch
            brought beyond them waits here.
        urgency: says which queues go first, where some do.

    Attributes:
        in_columns: how records were delivered last, and so are buffered.
        damage: what could not be read.
    """

    def __init__(self, limits: WindowLimits, urgency: Urgency | None = None) -> None:
        self._limits = limits
        self._allowance = Allowance(limits)
        self._urgency = urgency
        self._shares: dict[QueueRef, AssignedQueue] = {}
        # Revoked queues that are not handed over yet, and what they leave to commit.
        self._leaving: dict[QueueRef, AssignedQueue] = {}
        self._left: dict[QueueRef, int] = {}
        self._paused: set[QueueRef] = set()
        # Attempts under way.
        self._busy: Counter[QueueRef] = Counter()
        self.assigned: frozenset[QueueRef] = frozenset()
        self.in_columns = False
        self.damage = DamageLog()

    def assign(self, queues: Collection[QueueRef]) -> frozenset[QueueRef]:
        """Takes the group's new allocation; returns the revoked queues.

        Queues that stay are not touched. What was finished of a revoked one is left to commit. One
        that comes back before it was handed over is handed over all the same, and then started
        again: records that waited for their turn were dropped when it went.
        """
        revoked = self.assigned - frozenset(queues)
        # In one order in every process: it is the order of the next commit.
        for queue in sorted(revoked):
            share = self._shares.pop(queue, None)
            if share is not None:
                self._leaving[queue] = share
                self._leave(share)
        self.assigned = frozenset(queues)
        self._paused &= self.assigned
        return revoked

    def drained(self) -> list[QueueRef]:
        """The revoked queues on which no attempt goes on any more, in order."""
        return sorted(queue for queue in self._leaving if not self._busy[queue])

    def needs(self, queue: QueueRef) -> bool:
        """Whether a queue is assigned, or revoked and not handed over yet."""
        return queue in self.assigned or queue in self._leaving

    def part_with(self, queues: Iterable[QueueRef]) -> None:
        """These revoked queues belong to other members now."""
        for queue in queues:
            self._leaving.pop(queue, None)
            self._left.pop(queue, None)

    def suspend(self) -> None:
        """Stops delivery of everything until each queue is started again."""
        for share in self._shares.values():
            share.suspended = True

    def forget(self, topics: Collection[str]) -> None:
        """Drops what is known of the queues of topics; those assigned have to be started again."""
        for queue in [queue for queue in self._shares if queue.topic in topics]:
            del self._shares[queue]

    def to_start(self) -> list[QueueRef]:
        """The assigned queues whose offset must be looked up, in order."""
        return sorted(
            queue
            for queue in self.assigned.difference(self._leaving)
            if queue not in self._shares or self._shares[queue].suspended
        )

    def start(self, queue: QueueRef, offset: int, *, known: bool, committed: int) -> None:
        """Starts a queue, or resumes a suspended one.

        Args:
            queue: ignored unless it is assigned and waits for its start.
            offset: where to begin.
            known: the group has an offset for this queue, against which a suspended one's own
                place is held: what another member finished meanwhile is not delivered again.
            committed: the offset the broker holds, or -1.
        """
        share = self._shares.get(queue)
        self._left.pop(queue, None)
        if queue not in self.assigned or queue in self._leaving:
            return
        if share is not None and not share.suspended:
            return
        overtaken = share is not None and known and offset > share.window.lowest_unfinished
        if share is None or (overtaken and not share.sought):
            self._shares[queue] = AssignedQueue(queue, offset, committed=committed)
        else:
            share.suspended = share.sought = False
            share.committed = committed

    def seek(self, queue: QueueRef, offset: int) -> bool:
        """Drops what is buffered and in flight of a queue and goes on there; False: not assigned."""
        if queue not in self.assigned:
            return False
        old = self._shares.get(queue)
        share = self._shares[queue] = AssignedQueue(queue, offset)
        share.suspended = share.sought = old is None or old.suspended
        return True

    def get(self, queue: QueueRef) -> AssignedQueue | None:
        """The current share of a queue."""
        return self._shares.get(queue)

    def fetchable(self, *, asked: bool = False) -> list[AssignedQueue]:
        """The shares that can take more records; with `asked` also those being fetched."""
        return [
            share
            for share in self._shares.values()
            if not share.suspended
            and not share.damaged
            and not share.full
            and share.queue not in self._paused
            and (asked or share.asked is None)
        ]

    def take(self, share: AssignedQueue, records: Sequence[Record]) -> int:
        """Buffers fetched records that were not seen before; returns how many.

        Nothing is taken for a share that was replaced meanwhile.
        """
        if self._shares.get(share.queue) is not share:
            return 0
        end = share.window.end
        fresh = records
        if records and records[0].offset < end:
            fresh = [record for record in records if record.offset >= end]
        share.window.take(_offsets(fresh), [len(record.body) for record in fresh])
        share.full = share.window.is_full(self._limits)
        share.ready.extend(fresh)
        return len(fresh)

    def take_columns(self, share: AssignedQueue, columns: RecordColumns) -> int:
        """Like `take`, for records that stand in columns."""
        end = share.window.end
        if self._shares.get(share.queue) is not share or columns.offsets.stop <= end:
            return 0
        fresh = columns.behind(end) if columns.offset < end else columns
        share.window.take(fresh.offsets, map(len, fresh.bodies))
        share.full = share.window.is_full(self._limits)
        share.columns.append(fresh)
        return len(fresh)

    def pass_over(self, share: AssignedQueue, end: int) -> None:
        """Leaves out what the broker did not select, up to an offset."""
        if self._shares.get(share.queue) is share:
            share.window.pass_over(end)
            share.full = share.window.is_full(self._limits)

    def deliver_columns(self) -> list[RecordColumns]:
        """Hands out what is buffered as columns, in offset order per queue."""
        self._turn(in_columns=True)
        delivered: list[RecordColumns] = []
        for share in self._shares.values():
            if share.columns and not share.suspended and share.queue not in self._paused:
                if share.full:
                    within, share.columns = divided(share.columns, self._room(share))
                else:
                    within, share.columns = share.columns, []
                delivered += within
        return delivered

    def deliver(self, records_max: int | None = None) -> list[Record]:
        """Hands out what is buffered, in offset order per queue; queues take turns at a limit.

        Urgent queues come first, where some are.
        """
        self._turn(in_columns=False)
        records: list[Record] = []
        served: list[QueueRef] = []
        shares: Iterable[AssignedQueue] = self._shares.values()
        if self._urgency is not None:
            ready = [share for share in shares if share.ready]
            shares = self._urgency.arrange(ready, attrgetter("queue"))
        for share in shares:
            if not share.ready or share.suspended or share.queue in self._paused:
                continue
            room = self._room(share) if share.full else len(share.ready)
            if records_max is not None:
                room = min(room, records_max - len(records))
                if len(records) == records_max:
                    break
                served.append(share.queue)
            if room >= len(share.ready):
                records += share.ready
                share.ready = []
            else:
                records += share.ready[:room]
                del share.ready[:room]
        for queue in served:
            self._shares[queue] = self._shares.pop(queue)
        return records

    def pause(self, queues: Iterable[QueueRef]) -> None:
        """Neither fetches nor delivers these until they are resumed, or revoked."""
        self._paused |= self.assigned.intersection(queues)

    def resume(self, queues: Iterable[QueueRef]) -> None:
        """Goes on with paused queues."""
        self._paused.difference_update(queues)

    def is_suspended(self, queue: QueueRef) -> bool:
        """Whether it is not known whose the queue is."""
        share = self._shares.get(queue)
        return share is not None and share.suspended

    def begin(self, queue: QueueRef, offset: int) -> bool:
        """Notes an attempt on an offset; False: it is not this consumer's, nothing was noted."""
        held = self.holds(queue, offset)
        if held:
            self._busy[queue] += 1
        return held

    def end(self, queue: QueueRef, offset: int, *, done: bool) -> bool:
        """Ends an attempt; what is `done` is finished even if the queue was revoked meanwhile.

        Returns whether the queue became fetchable, or ready to be handed over.
        """
        self._busy[queue] -= 1
        if not self._busy[queue]:
            del self._busy[queue]
        leaving = self._leaving.get(queue)
        if leaving is None:
            return done and self.finish(queue, offset)
        if done and leaving.window.finish(offset):
            self._leave(leaving)
        return queue not in self._busy

    def holds(self, queue: QueueRef, offset: int) -> bool:
        """Whether an offset was delivered or buffered and is this consumer's to finish."""
        share = self._shares.get(queue)
        return share is not None and offset in share.window

    def finish(self, queue: QueueRef, offset: int) -> bool:
        """Finishes an offset; returns whether its queue can be fetched again, or more of it delivered."""
        share = self._shares.get(queue)
        if share is None or not share.window.finish(offset) or not share.full:
            return False
        return self._has_more_room(share)

    def finish_all(self, queue: QueueRef, offsets: Iterable[int]) -> bool:
        """Finishes many offsets of a queue; returns as `finish` does."""
        share = self._shares.get(queue)
        if share is None or not share.window.finish_all(offsets) or not share.full:
            return False
        return self._has_more_room(share)

    def to_commit(self) -> dict[QueueRef, int]:
        """The offsets that the broker does not hold yet, revoked queues included."""
        offsets = dict(self._left)
        for queue, share in self._shares.items():
            if not share.suspended and share.window.lowest_unfinished != share.committed:
                offsets[queue] = share.window.lowest_unfinished
        return offsets

    def forget_revoked(self) -> None:
        """Gives up the offsets of revoked queues; their new owners handle more again."""
        self._left.clear()

    def committed(self, offsets: Mapping[QueueRef, int]) -> None:
        """Notes that the broker holds these offsets."""
        for queue, offset in offsets.items():
            if self._left.get(queue) == offset:
                del self._left[queue]
            if queue in self._shares:
                self._shares[queue].committed = offset

    def _room(self, share: AssignedQueue) -> int:
        """How much of what a share has buffered is handed over now; notes whether more of it waits."""
        room = self._allowance.room(share.window, share.ready, share.columns)
        share.held = room < len(share.ready) + sum(map(len, share.columns))
        return room

    def _has_more_room(self, share: AssignedQueue) -> bool:
        """Whether something was finished that a full share waited for; it says so once."""
        share.full = share.window.is_full(self._limits)
        if not share.full:
            return True
        if share.held and self._allowance.is_worth_waking(share.window, share.ready, share.columns):
            share.held = False
            return True
        return False

    def _turn(self, *, in_columns: bool) -> None:
        if self.in_columns == in_columns:
            return
        self.in_columns = in_columns
        for share in self._shares.values():
            if in_columns:
                share.columns, share.ready = from_records(share.ready), []
            else:
                share.ready = [one for run in share.columns for one in run.records()]
                share.columns = []

    def _leave(self, share: AssignedQueue) -> None:
        if share.window.lowest_unfinished != share.committed and not share.suspended:
            self._left[share.queue] = share.window.lowest_unfinished


def _offsets(records: Sequence[Record]) -> Sequence[int]:
    """The offsets of records that ascend; as a range if it is one, which costs no loop."""
    count = len(records)
    if count and records[-1].offset - records[0].offset == count - 1:
        return range(records[0].offset, records[-1].offset + 1)
    return [record.offset for record in records]
