"""
The batches of one queue, in order: those in flight, full ones behind them, and an open one.

Messages that are added while a batch is in flight go together in the next one, so batches grow with
the load. A large batch is sent while others are in flight. The broker takes batches of a producer only
in the order of their sequence numbers: where it refuses one it refuses those behind it, and all are
sent again in order. A retry sends the same bytes with the same sequence, so that the broker recognises
it. The broker accepts any first sequence of a producer that it does not know. So a second batch is sent
only after another one was acknowledged on the same connection, not long ago.

Used by `send_buffer` and `reroute`. Never waits and sends nothing itself; the send buffer reports what
became of a batch.
"""

import secrets
from collections import deque

from headrace_mq.client.batch.batch import Batch, Place
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.errors import BrokerError
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ProducerSettings

__all__ = ["FOLLOW_BYTES", "QueueSender", "new_producer_id"]

SEQUENCE_MAX = (1 << 32) - 1
# Batches of one queue on their way at a time: the broker remembers as many, and recognises their repetition.
IN_FLIGHT_MAX = 5
# A batch follows those in flight from this size on. Smaller ones cost both sides more than it saves
# to send them early: waves of commands would break into many small requests.
FOLLOW_BYTES = 64 << 10

# Of a pause, from one attempt to the next; more would only make a number that the longest pause cuts off.
DOUBLINGS_MAX = 16


def new_producer_id() -> int:
    """A number that no other producer has: 63 random bits."""
    return secrets.randbits(63)


class QueueSender:
    """The way to one queue.

    Args:
        queue: the queue.
        producer_id: under which the broker recognises repeated batches.
        messages_max: most messages of a batch.
        bytes_max: size from which a batch takes no more messages.
        codec: how payloads are compressed.

    Attributes:
        waiting: batches that were never sent, oldest first; the last one takes more messages.
        flight: batches that were sent, oldest first; those that come back stay until all answers are
            there.
        confirmed: the broker knows the producer: it took a batch on this connection, lately.
        paused: what came back waits for its next attempt.
        severed: a batch was given up, so this sequence ends.
        late: the batch that was given up may be stored yet.
        shut: the queue takes no messages, as far as is known: what waits stays, to go elsewhere.
        refused: batches that the queue did not take for that, before all that wait.
        refusal: what the broker said of the last of these.
    """

    __slots__ = (
        "_again",
        "_codec",
        "_producer_id",
        "_renumber",
        "_sequence",
        "_unanswered",
        "bytes_max",
        "confirmed",
        "flight",
        "late",
        "messages_max",
        "paused",
        "queue",
        "refusal",
        "refused",
        "severed",
        "shut",
        "waiting",
    )

    def __init__(
        self, queue: QueueRef, producer_id: int, *, messages_max: int, bytes_max: int, codec: str
    ) -> None:
        self.queue = queue
        self._producer_id = producer_id
        self._sequence = 0
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self._codec = codec
        self.waiting: deque[Batch] = deque()
        # Those that came back, before all that wait.
        self._again: deque[Batch] = deque()
        self.flight: deque[Batch] = deque()
        self._unanswered = 0
        self.confirmed = self.paused = self.severed = self.late = self.shut = False
        self.refused: list[Batch] = []
        self.refusal: BrokerError | None = None
        # What came back is certain not to be stored, and begins the next sequence.
        self._renumber = False

    def pause(self, attempts: int, settings: ProducerSettings) -> int:
        """Has what came back wait; returns for how long, in ms: the longer, the more attempts there were."""
        self.paused = True
        longer = settings.reconnect_ms_min << min(attempts - 1, DOUBLINGS_MAX)
        return min(longer, settings.reconnect_ms_max)

    @property
    def has_work(self) -> bool:
        """Whether `depart` has a batch to send now."""
        flight = self.flight
        if not flight:
            if self._again:
                return not self.paused
            return bool(self.waiting) and not self.shut
        if (
            not self.confirmed
            or self.severed
            or len(flight) >= IN_FLIGHT_MAX
            or self._unanswered < len(flight)
        ):
            return False
        if self._again:
            return True
        following = self.waiting[0] if self.waiting else None
        return (
            following is not None
            and following.size >= FOLLOW_BYTES
            and self._sequence + following.count <= SEQUENCE_MAX
        )

    @property
    def is_quiet(self) -> bool:
        """Whether the broker has nothing of it, or has said what became of that."""
        return not self.flight and not self._again

    @property
    def is_empty(self) -> bool:
        """Whether it holds no batch."""
        return not (self.flight or self._again or self.refused or self.waiting)

    @property
    def waits_bytes(self) -> int:
        """The size of the first batch that waits; there is one."""
        return self.waiting[0].size

    def add(self, message: Message, size: int, born_ms: int) -> Place:
        """Gives a message its place behind all earlier ones.

        The caller that gets number 0 of a batch sets its deadline.
        """
        batch = self.waiting[-1] if self.waiting else None
        if batch is None or batch.count >= self.messages_max or batch.size + size > self.bytes_max:
            batch = Batch(self.queue)
            self.waiting.append(batch)
        return batch, batch.add(message, size, born_ms)

    def adopt(self, batch: Batch) -> None:
        """Takes in a batch that moved here from another queue, behind all that wait."""
        self.waiting.append(batch)

    def refuse(self, batch: Batch, error: BrokerError) -> None:
        """A batch in flight is not stored, because the queue takes nothing; this shuts the sender.

        So that the order stays, only the first one in flight is taken out; others are sent again.
        """
        self.shut, self.refusal = True, error
        if batch is not self.flight[0]:
            self.returned(batch)
            return
        batch.refusals.append(str(error))
        self.lost(batch)
        self.refused.append(batch)

    def vacate(self) -> list[Batch]:
        """Takes out what a shut and quiet sender holds, oldest first; then it is open again."""
        left = [*self.refused, *self.waiting]
        self.refused.clear()
        self.waiting.clear()
        self.shut = False
        return left

    def extend(self, part: MessageColumns, born_ms: int) -> list[tuple[Batch, int, int]]:
        """Gives many messages their places behind all earlier ones.

        Returns, in their order, batches with the number of the first message there and how many.
        The caller that gets number 0 of a batch sets its deadline.
        """
        placed: list[tuple[Batch, int, int]] = []
        left = [part]
        while left:
            part = left.pop()
            batch = self.waiting[-1] if self.waiting else None
            room = self.messages_max - batch.count if batch is not None else 0
            fits = batch is not None and batch.size + part.size <= self.bytes_max
            if fits and 0 < room < len(part):
                left += _split(part, room)
                continue
            if batch is None or not room or not fits:
                if len(part) > self.messages_max:
                    left += _split(part, self.messages_max)
                    continue
                if part.size > self.bytes_max and len(part) > 1:
                    left += _split(part, len(part) // 2)
                    continue
                batch = Batch(self.queue)
                self.waiting.append(batch)
            placed.append((batch, batch.extend(part, born_ms), len(part)))
        return placed

    def depart(self) -> tuple[Batch, bytearray]:
        """Takes the next batch, or one that came back, and its bytes; only where there is work.

        The bytes belong to this object: sending must not change them, as they are sent again.
        """
        if self._again:
            batch = self._again.popleft()
        else:
            if self.severed:
                self._begin_sequence()
            batch = self._encode(self.waiting.popleft())
        assert batch.encoded is not None
        self.flight.append(batch)
        self._unanswered += 1
        batch.on_way = True
        batch.attempts += 1
        return batch, batch.encoded

    def arrived(self, batch: Batch) -> None:
        """A batch in flight was stored."""
        self._remove(batch)
        self.confirmed = True

    def returned(self, batch: Batch) -> None:
        """A batch in flight is to be sent again; those behind it come back too."""
        batch.on_way = False
        self._unanswered -= 1
        self.confirmed = False
        self._turn_back()

    def gapped(self, batch: Batch) -> bool:
        """The broker misses what comes before a batch; returns whether it will be sent again.

        That is so where its predecessor came back, and where it was refused for good: then the
        broker never has it, and the rest begins a new sequence. A predecessor that is only late may
        be stored yet, from a connection that was lost, and what followed it there with it: under
        new numbers that would be stored twice.
        """
        if batch is self.flight[0]:
            if not self.severed or self.late:
                return False
            self._renumber = True
        self.returned(batch)
        return True

    def lost(self, batch: Batch) -> None:
        """A batch in flight is given up: it was refused for good.

        Its sequence numbers may be used or not, so what follows begins a new sequence under a
        new producer id: reused numbers would be taken for repetitions, skipped ones for a gap.
        """
        self.severed = True
        self._remove(batch)
        self._sever()

    def abandoned(self) -> list[Batch]:
        """Takes out every batch, oldest first."""
        left = [*self.flight, *self._again, *self.refused, *self.waiting]
        for batches in (self.flight, self._again, self.refused, self.waiting):
            batches.clear()
        self._unanswered = 0
        self._begin_sequence()
        return left

    def expired(self, now_ms: int) -> list[Batch]:
        """Takes out the batches whose time is up, oldest first."""
        late: list[Batch] = []
        for batches in (self.flight, self._again):
            while batches and batches[0].deadline_ms <= now_ms:
                batch = batches.popleft()
                self._unanswered -= batch.on_way
                batch.on_way = False
                late.append(batch)
            if batches:
                break
        if late:
            self.severed = self.late = True
            self._turn_back()
            self._sever()
        while self.refused and self.refused[0].deadline_ms <= now_ms:
            late.append(self.refused.pop(0))
        if not self.flight and not self._again:
            while self.waiting and self.waiting[0].deadline_ms <= now_ms:
                late.append(self.waiting.popleft())
        return late

    def rest(self) -> None:
        """Nothing may be taken for granted of a broker that was not heard of for a while."""
        if not self.flight:
            self.confirmed = False

    def _remove(self, batch: Batch) -> None:
        batch.on_way = False
        self._unanswered -= 1
        self.flight.remove(batch)
        if self.flight:
            self._turn_back()

    def _turn_back(self) -> None:
        if self._unanswered or not self.flight:
            return
        self._again.extendleft(reversed(self.flight))
        self.flight.clear()
        if self._renumber:
            self._begin_sequence()
            for batch in self._again:
                batch.decode()
                self._encode(batch)

    def _sever(self) -> None:
        if not self.flight and not self._again:
            self._begin_sequence()

    def _encode(self, batch: Batch) -> Batch:
        if self._sequence + batch.count > SEQUENCE_MAX:
            self._begin_sequence()
        batch.encode(
            producer_id=self._producer_id, first_sequence=self._sequence, codec=self._codec
        )
        self._sequence += batch.count
        return batch

    def _begin_sequence(self) -> None:
        self._producer_id = new_producer_id()
        self._sequence = 0
        self.confirmed = self.severed = self.late = self._renumber = False


def _split(part: MessageColumns, at: int) -> list[MessageColumns]:
    """Cuts a part in two, the first one last."""
    return [part.pick(range(at, len(part))), part.pick(range(at))]
