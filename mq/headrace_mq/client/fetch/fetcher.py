"""
Fetches: keeps every queue that can take records asked for at the broker, and no queue twice.

One fetch asks for all queues that are not being asked for, so at rest one long poll waits for all
of them. A queue that is assigned, sought or has room again while that poll is parked gets a fetch
of its own at once. Records are taken by their offsets: it does not matter which fetch brought them,
and what is too old is dropped.

Used by `Consumer` and `PullConsumer`; fills `assigned_queues`, which say what to ask for.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from headrace_mq._net.client_connection import Answer
from headrace_mq._net.link import Link
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.fetch.assigned_queues import AssignedQueue, AssignedQueues
from headrace_mq.client.fetch.damage import Damaged, marker_of
from headrace_mq.client.fetch.flow_control import FetchDelay
from headrace_mq.client.fetch.record_columns import (
    RecordColumns,
    decode_record_columns,
    from_records,
)
from headrace_mq.errors import (
    ConnectionLost,
    DataCorrupt,
    FormatTooNew,
    MalformedRequest,
    MessageQueueError,
    ResponseCode,
    UndecodableBatch,
)
from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import check_head, decode_records, read_header, split_batches
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchedQueue,
    FetchFrom,
    Picked,
    TopicFilter,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.filter.batch_filter import selected_of
from headrace_mq.protocol.filter.picks import picked_records
from headrace_mq.protocol.sparse import is_sparse, removed_before
from headrace_mq.settings import ConsumerSettings

__all__ = ["Fetcher", "GroupFilters"]

# The broker's limit of queues in one fetch.
QUEUES_PER_FETCH_MAX = 1_024
# Above this many fetches under way, the next one asks for everything and takes their place.
FETCHES_MAX = 8
# Fetches under way together with those replaced, which end by themselves when their wait is over.
FETCHES_PARKED_MAX = 64
# With so many records in an answer the next one is on its way while they are handled: asking costs as
# much as a consumer's work on a few dozen.
ASKED_FIRST_RECORDS = 64
# Pause after an answer without records that came at once: the broker has no room for waiting.
EMPTY_PAUSE_MS = 100
# Pause after an answer that says that something is wrong.
TROUBLE_PAUSE_MS = 1_000

_log = get_logger(__name__)


class GroupFilters(NamedTuple):
    """The group that reads, and what it wants of a topic: all of those without a filter."""

    group: str
    filters: Mapping[str, Filter]


class _Asked(NamedTuple):
    """A fetch that is under way: its number, when it was asked, and from where it reads each share."""

    number: int
    at_ms: int
    shares: dict[QueueRef, AssignedQueue]
    offsets: list[int]


class _Taken(NamedTuple):
    """What an answer brought: records, a way forward, or something that is wrong."""

    records: int
    moved: bool
    trouble: bool


class Fetcher:
    """The fetches of one consumer.

    Args:
        link: the connection.
        shares: the consumer's queues.
        settings: how much and how long.
        clock: tells quick answers from waited ones.
        asking: for whom.
        on_records: called when records were buffered.
        on_error: takes an error that the application must see.
    """

    def __init__(
        self,
        link: Link,
        shares: AssignedQueues,
        *,
        settings: ConsumerSettings,
        clock: Clock,
        asking: GroupFilters,
        on_records: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._link = link
        self._shares = shares
        self._settings = settings
        self._clock = clock
        self._group, self._filters = asking
        self._on_records = on_records
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._current: set[int] = set()
        self._gathering = FetchDelay(settings.fetch_gather_ms)
        self._parked = 0
        self._next_fetch = 0
        self._scheduled = False
        self._stopped = False

    def pull_soon(self) -> None:
        """Asks, at the end of this tick, for every queue that can take records and is not asked."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pull)

    def want(self) -> None:
        """The application waits for records: makes the fetches that were put off until it does."""
        self._gathering.end()

    def stop(self) -> None:
        """Asks for nothing more, and ignores what is still under way."""
        self._stopped = True
        self._gathering.end()

    def _pull(self) -> None:
        self._scheduled = False
        if self._stopped or not self._link.is_ready or self._parked >= FETCHES_PARKED_MAX:
            return
        shares = self._shares.fetchable()
        if shares and len(self._current) >= FETCHES_MAX:
            shares = self._shares.fetchable(asked=True)
            self._current.clear()
        together = [share for share in shares if not share.alone]
        for at in range(0, len(together), QUEUES_PER_FETCH_MAX):
            self._fetch(together[at : at + QUEUES_PER_FETCH_MAX])
        for share in shares:
            if share.alone:
                self._fetch([share])

    def _fetch(self, shares: Sequence[AssignedQueue]) -> None:
        topics = {share.queue.topic for share in shares} if self._filters else ()
        filters = [
            TopicFilter(name, self._filters[name].text)
            for name in sorted(topics)
            if name in self._filters
        ]
        request = Fetch(
            queues=[FetchFrom(*share.queue, share.window.end) for share in shares],
            bytes_max=self._settings.fetch_bytes_max,
            wait_ms=self._settings.fetch_wait_ms,
            group=self._group,
            filters=filters,
            picks=bool(filters),
        )
        number = self._next_fetch
        self._next_fetch += 1
        asked_at_ms = self._clock.monotonic_ms()
        asked = _Asked(
            number,
            asked_at_ms,
            {share.queue: share for share in shares},
            [one.offset for one in request.queues],
        )
        receive = partial(self._answered, asked)
        try:
            # At once: this is the end of the tick.
            self._link.submit(RequestCode.FETCH, encode(request), receive=receive, at_once=True)
        except ConnectionLost:
            return
        self._parked += 1
        self._current.add(number)
        for share in shares:
            share.asked = number

    def _answered(self, asked: _Asked, answer: Answer) -> None:
        self._parked -= 1
        self._current.discard(asked.number)
        if self._stopped:
            return
        taken = _Taken(0, moved=False, trouble=False)
        if not isinstance(answer, MessageQueueError):
            taken = self._take(asked, answer)
        elif not isinstance(answer, ConnectionLost):
            _log.warning("the broker refused a fetch; the consumer tries again", reason=str(answer))
            taken = _Taken(0, moved=False, trouble=True)
        # Many records take the application a while, and a filter takes the broker one: then the
        # broker is asked again first. A few records do not wait for that.
        at_once = 0 < taken.records < ASKED_FIRST_RECORDS and not self._filters
        if at_once:
            self._on_records()
        pause_ms = 0
        if taken.trouble:
            pause_ms = TROUBLE_PAUSE_MS
        elif not taken.moved and self._clock.monotonic_ms() - asked.at_ms < EMPTY_PAUSE_MS:
            pause_ms = EMPTY_PAUSE_MS
        if pause_ms:
            self._loop.call_later(pause_ms / 1_000, self._release, asked)
        elif self._gathering.hold(taken.records, partial(self._release, asked)):
            pass
        elif at_once:
            # Behind what the application was just woken up for.
            self._loop.call_soon(self._release, asked)
        else:
            self._release(asked)
        if taken.records and not at_once:
            self._on_records()

    def _release(self, asked: _Asked) -> None:
        number = asked.number
        for share in asked.shares.values():
            # A fetch that took this one's place may be asking for the queue.
            if share.asked == number:
                share.asked = None
        self.pull_soon()

    def _take(self, fetch: _Asked, answer: memoryview) -> _Taken:
        """Takes an answer's records."""
        try:
            states, batches = decode_fetch_answer(answer)
        except MalformedRequest as error:
            self._on_error(error)
            return _Taken(0, moved=False, trouble=True)
        asked = fetch.shares
        count, trouble = 0, False
        for state in states.queues:
            if state.code != ResponseCode.OK:
                trouble = self._settle(asked, state) or trouble
        try:
            picks = _Waiting(states.picked)
            for batch in split_batches(batches):
                # Both checksums first: nothing of a damaged batch can be trusted, not even its queue.
                check_head(batch)
                for records in picks.before(batch):
                    count += self._take_records(asked, records)
                try:
                    count += self._take_batch(asked, batch)
                except UndecodableBatch as error:
                    count += self._leave_out(asked, batch, str(error))
            for records in picks.rest():
                count += self._take_records(asked, records)
        except MessageQueueError as error:
            self._isolate(list(asked.values()), error)
        else:
            self._pass_over(asked, states.queues)
        # A filter and a compaction leave ways without records, which are gone at once.
        moved = count > 0 or fetch.offsets != [share.window.end for share in asked.values()]
        return _Taken(count, moved=moved, trouble=trouble)

    def _pass_over(
        self, asked: Mapping[QueueRef, AssignedQueue], states: Sequence[FetchedQueue]
    ) -> None:
        """Goes on behind what was not selected; what was asked for alone could be read."""
        if len(asked) == 1:
            (share,) = asked.values()
            share.alone = False
        for state in states:
            if state.next >= 0:
                passed = asked.get(QueueRef(state.topic, state.queue_id))
                if passed is not None:
                    self._shares.pass_over(passed, state.next)

    def _take_records(self, asked: Mapping[QueueRef, AssignedQueue], records: list[Record]) -> int:
        """Takes records of one queue that the broker has picked."""
        share = asked.get(records[0].queue)
        if share is None:
            return 0
        if not self._shares.in_columns:
            return self._shares.take(share, records)
        return sum(self._shares.take_columns(share, one) for one in from_records(records))

    def _take_batch(self, asked: dict[QueueRef, AssignedQueue], batch: memoryview) -> int:
        if is_sparse(batch):
            return self._take_sparse(asked, batch)
        if self._shares.in_columns:
            columns = decode_record_columns(batch)
            share = self._reader(asked, columns.queue, columns.offset, batch)
            if share is None:
                return 0
            chosen = self._chosen_columns(columns)
            return sum(self._shares.take_columns(share, one) for one in chosen)
        records = decode_records(batch)
        share = self._reader(asked, records[0].queue, records[0].offset, batch)
        if share is None or records[-1].offset < share.window.end:
            return 0
        return self._shares.take(share, self._chosen(records[0].queue.topic, records))

    def _leave_out(
        self, asked: Mapping[QueueRef, AssignedQueue], batch: memoryview, reason: str
    ) -> int:
        """Goes on behind a sound batch that no reader can decode; its checksums vouch for its header."""
        header = read_header(batch)
        share = self._reader(asked, header.queue, header.base_offset, batch)
        if share is None or header.next_offset <= share.window.end:
            return 0
        first = max(header.base_offset, share.window.end)
        damaged = Damaged(header.queue, first, header.next_offset, reason)
        self._shares.damage.tell(damaged)
        if self._shares.damage.marks:
            marker = marker_of(damaged, at_ms=header.appended_at_ms)
            return self._take_records(asked, [marker])
        self._shares.pass_over(share, header.next_offset)
        return 0

    def _take_sparse(self, asked: dict[QueueRef, AssignedQueue], batch: memoryview) -> int:
        """Takes what a compaction left of a batch, and goes on behind the last of its offsets."""
        header = read_header(batch)
        records = decode_records(batch)
        share = self._reader(asked, header.queue, header.base_offset, batch)
        if share is None:
            return 0
        chosen = self._chosen(header.queue.topic, records)
        if self._shares.in_columns:
            runs = from_records(chosen)
            taken = sum(self._shares.take_columns(share, one) for one in runs)
        else:
            taken = self._shares.take(share, chosen)
        self._shares.pass_over(share, header.next_offset)
        return taken

    def _reader(
        self,
        asked: Mapping[QueueRef, AssignedQueue],
        queue: QueueRef,
        offset: int,
        batch: memoryview,
    ) -> AssignedQueue | None:
        share = asked.get(queue)
        if (
            share is not None
            and offset > share.window.end
            and offset - removed_before(batch) > share.window.end
            and queue.topic not in self._filters
        ):
            missing = (share.queue, share.window.end, offset)
            damaged = Damaged(*missing, "the broker has no message there any more")
            self._shares.damage.tell(damaged)
            if self._shares.damage.marks:
                # In front of what follows: its own batch says that something came.
                marker = marker_of(damaged, at_ms=read_header(batch).appended_at_ms)
                self._take_records(asked, [marker])
        return share

    def _chosen(self, topic: str, records: list[Record]) -> list[Record]:
        wanted = self._filters.get(topic)
        return records if wanted is None else selected_of(records, wanted)

    def _chosen_columns(self, columns: RecordColumns) -> Sequence[RecordColumns]:
        topic = columns.queue.topic
        if topic not in self._filters:
            return [columns]
        return from_records(self._chosen(topic, columns.records()))

    def _isolate(self, shares: Sequence[AssignedQueue], error: MessageQueueError) -> None:
        """Finds the queue whose batch cannot be read, by asking for each one alone, and stops it.

        What follows there must wait: skipping is for the application to decide.
        """
        if len(shares) > 1:
            _log.warning(
                "an answer cannot be read; the consumer fetches each queue alone", reason=str(error)
            )
            for share in shares:
                share.alone = True
            return
        (share,) = shares
        if self._shares.get(share.queue) is share:
            share.damaged = True
            unreadable = _unreadable(share, error)
            _log.error("a queue stopped: its next messages cannot be read", reason=str(unreadable))
            self._on_error(unreadable)

    def _settle(self, asked: dict[QueueRef, AssignedQueue], state: FetchedQueue) -> bool:
        """Acts on a queue that could not be read; returns whether to wait before asking again."""
        share = asked.get(QueueRef(state.topic, state.queue_id))
        if share is None or self._shares.get(share.queue) is not share:
            return False
        offset = share.window.end
        beyond = not state.first <= offset <= state.end
        _log.warning(
            "a queue cannot be read here",
            topic=state.topic, queue_id=state.queue_id, offset=offset,
            first=state.first, end=state.end, reason=state.sentence,
        )  # fmt: skip
        if state.code == ResponseCode.OFFSET_OUT_OF_RANGE and beyond:
            # Too old: the rest was deleted by age. Too far: a broker that lost its tail.
            self._shares.seek(share.queue, state.first if offset < state.first else state.end)
            return False
        return True


class _Waiting:
    """Picked messages of an answer, which wait for the batches before them."""

    def __init__(self, found: Sequence[Picked]) -> None:
        self._waiting = [picked_records(one) for one in found]

    def before(self, batch: memoryview) -> list[list[Record]]:
        """Those of the batch's queue that stand before it; they wait no more."""
        ready: list[list[Record]] = []
        if self._waiting:
            header = read_header(batch)
            queue, offset = header.queue, header.base_offset
            found, self._waiting = self._waiting, []
            for one in found:
                first = one[0]
                is_ready = first.queue == queue and first.offset < offset
                (ready if is_ready else self._waiting).append(one)
        return ready

    def rest(self) -> list[list[Record]]:
        """Those that still wait."""
        return self._waiting


def _unreadable(share: AssignedQueue, error: MessageQueueError) -> MessageQueueError:
    kind = FormatTooNew if isinstance(error, FormatTooNew) else DataCorrupt
    unreadable = kind(
        f"queue {share.queue.topic}/{share.queue.queue_id} cannot be read from offset"
        f" {share.window.end} on: {error}; it stays there until the consumer seeks past it"
    )
    unreadable.__cause__ = error
    return unreadable
