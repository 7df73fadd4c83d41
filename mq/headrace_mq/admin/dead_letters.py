"""
Administration of dead letters: list what a group gave up, send it again, or purge it from the list.

    %DLQ%group    letters, each with its origin        read, sent again
    %MARK%group   which were sent again, or purged     read first, appended to when it is done

A letter is sent again to where its group handles it: the retry topic of a group that has one, else
the topic it came from. Its mark is appended when the copy is durable. So after a crash in between, up
to a hundred letters are sent twice, but none is left out.

A part of `AdminClient`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace_mq._runtime.checks import require, require_types
from headrace_mq.admin.connection import AdminConnection
from headrace_mq.admin.letter_marks import (
    Kind,
    LetterMarks,
    Runs,
    decode_mark,
    encode_marks,
    marks_queue,
)
from headrace_mq.admin.readable import readable_records
from headrace_mq.client.fetch.damage import is_marker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retry_headers import (
    ORIGIN_HEADER,
    Origin,
    dead_letter_topic,
    origin_of,
    retry_topic,
)
from headrace_mq.errors import (
    InvalidArgument,
    MessageQueueError,
    QueueFrozen,
    QueueNotFound,
    ResponseCode,
    TopicNotFound,
    error_for,
)
from headrace_mq.message import Message, QueueRef, Record, SendResult
from headrace_mq.protocol.administration import OffsetsAt
from headrace_mq.protocol.batch import split_batches
from headrace_mq.protocol.bodies import (
    DescribeTopics,
    Fetch,
    FetchFrom,
    GetOffsets,
    OffsetsAnswer,
    QueueRanges,
    QueueRangesAnswer,
    TopicsAnswer,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = [
    "LETTERS_MAX",
    "DeadLetter",
    "DeadLetterAdministration",
    "LetterCount",
    "ResendRate",
    "ResendSettings",
    "Resent",
]

# Letters of one answer, and those that are read at a time.
LETTERS_MAX = 1_000
_FETCH_BYTES = 1 << 20
# Of versions before: under this group's offset stands what `resend_all` sent.
_RESENT_PREFIX = "%RESENT%"
# Others will be sent although one ends with these.
_FAULTS_OF_LETTERS = (ValueError, InvalidArgument, TopicNotFound, QueueNotFound, QueueFrozen)


class ResendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How fast letters are sent again, and how many at a time."""

    # Letters in a second, on average. What they failed on has just come back; ten thousand at once
    # would bring it down again, and what is new would wait behind them.
    per_second: int = 500
    # Letters that are sent at a time and then marked together: so many may be sent twice after a crash.
    together_max: int = 100

    def __post_init__(self) -> None:
        require_types(self)
        for name in self.__struct_fields__:
            require(getattr(self, name) >= 1, f"{name} must be at least 1")


class ResendRate:
    """So many a second, counted from a beginning, in portions.

    Args:
        settings: how many.
        now_s: the time now, in seconds of a clock that is never set.
    """

    def __init__(self, settings: ResendSettings, now_s: float) -> None:
        self._per_second = settings.per_second
        # Ten portions a second: at a rate of three they come one by one.
        self.portion = min(settings.together_max, max(1, settings.per_second // 10))
        self._begun_s = now_s
        self._done = 0

    def pause_s(self, done: int, now_s: float) -> float:
        """How long to wait, in seconds, after so many more."""
        self._done += done
        return max(0.0, self._begun_s + self._done / self._per_second - now_s)


class DeadLetter(NamedTuple):
    """One record that a group gave up; `id` is its offset among the group's dead letters.

    `resent_at_ms` is when it was last sent again, in ms since 1970 UTC: None for never, 0 if an older
    version did it at an unknown time.
    """

    id: int
    origin: Origin | None
    record: Record
    resent_at_ms: int | None = None


class LetterCount(NamedTuple):
    """How many dead letters a group has on its list, and how many of them were never sent again."""

    listed: int
    unsent: int


class Resent(NamedTuple):
    """The result of sending one letter again: the new place, or why it was not sent."""

    id: int
    sent: SendResult | None
    error: str = ""


class DeadLetterAdministration(AdminConnection):
    """The calls about dead letters."""

    async def dead_letters(
        self, group: str, *, start: int = 0, limit: int = 100, unsent: bool = False
    ) -> list[DeadLetter]:
        """The dead letters of a group in the order of their ids, without purged ones.

        Args:
            group: the group.
            start: the first id to return.
            limit: how many at most, up to 1,000.
            unsent: leave out letters that were sent again.

        Raises:
            InvalidArgument: the limit is out of range.
        """
        if not 1 <= limit <= LETTERS_MAX:
            raise InvalidArgument(f"the limit is 1 to {LETTERS_MAX}, not {limit}")
        queue = QueueRef(dead_letter_topic(group), 0)
        first, end = await self._range(queue)
        marks = await self._marks(group)
        records, at = list[Record](), max(first, start)
        while at < end and len(records) < limit:
            found, at = await self._page(queue, marks, at, end, unsent=unsent, heads=True)
            records += found
        records = records[:limit]
        times = marks.resent_at_ms(one.offset for one in records)
        return [
            DeadLetter(one.offset, origin_of(one), one, times.get(one.offset)) for one in records
        ]

    async def count_letters(self, group: str) -> LetterCount:
        """How many dead letters of a group are on its list, without purged ones.

        Args:
            group: the group; one that has no dead letters has 0.
        """
        first, end = await self._range(QueueRef(dead_letter_topic(group), 0))
        if first == end:
            return LetterCount(0, 0)
        marks = await self._marks(group)
        listed = Runs([(first, end)]).without(marks.purged)
        return LetterCount(len(listed), len(listed.without(marks.resent)))

    async def resend(
        self, group: str, ids: Sequence[int], *, body: bytes | None = None
    ) -> list[Resent]:
        """Sends dead letters again, even if they were sent again before; reports each.

        Args:
            group: the group that gave them up.
            ids: the letters, at most LETTERS_MAX.
            body: what the one letter of `ids` says instead; its key, tag and headers stay.

        Raises:
            InvalidArgument: too many at a time, a body for several, or no dead letter has an id; nothing was sent.
            SendTimeout, ConnectionLost: some letters were sent again, perhaps without their mark.
        """
        if body is not None and len(set(ids)) != 1:
            raise InvalidArgument("a new body is for one letter: give one id")
        if len(ids) > LETTERS_MAX:
            raise InvalidArgument(f"at most {LETTERS_MAX} letters at a time, not {len(ids)}")
        queue = QueueRef(dead_letter_topic(group), 0)
        first, end = await self._range(queue)
        marks = await self._marks(group)
        records = []
        for one in dict.fromkeys(ids):
            listed = first <= one < end and one not in marks.purged
            found = await self._read(queue, one, end, 1) if listed else []
            if not found or found[0].offset != one:
                raise _no_letter(group, one, first, end)
            records += found
        async with Producer(self._link.address) as producer:
            await _make_marks(producer, group)
            return (await self._resend(producer, group, records, body))[0]

    async def resend_all(
        self,
        group: str,
        *,
        settings: ResendSettings | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Resent]:
        """Sends every unsent dead letter again, in the order of their ids; reports each.

        After an interruption, call it again: it goes on after the letters that it marked. A crash may
        send up to `together_max` unmarked letters twice, and skips none. It skips letters that
        cannot be sent, and ends when it can send none of a portion.

        Args:
            group: the group; run one call at a time, because two would send the same letters.
            settings: how fast.
            progress: called now and then with the number of letters so far.

        Raises:
            SendTimeout, ConnectionLost: as `resend`; call it again.
        """
        queue = QueueRef(dead_letter_topic(group), 0)
        at, end = await self._range(queue)
        if at == end:
            return []
        marks, loop = await self._marks(group), asyncio.get_running_loop()
        pace = ResendRate(settings or ResendSettings(), loop.time())
        reported: list[Resent] = []
        async with Producer(self._link.address) as producer:
            await _make_marks(producer, group)
            while at < end:
                records, at = await self._page(queue, marks, at, end, unsent=True)
                for first in range(0, len(records), pace.portion):
                    portion = records[first : first + pace.portion]
                    outcomes, stalled = await self._resend(producer, group, portion)
                    reported += outcomes
                    if stalled:
                        return reported
                    if progress is not None:
                        progress(len(reported))
                    if (pause_s := pace.pause_s(len(portion), loop.time())) > 0:
                        await asyncio.sleep(pause_s)
        return reported

    async def purge(
        self,
        group: str,
        *,
        ids: Sequence[int] | None = None,
        resent: bool = False,
        before_ms: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Takes letters off the list for good, durably. Returns how many.

        The records stay in their log as long as it is kept, but no command shows them, or sends
        them again. Letters must meet every condition that you give.

        Args:
            group: the group.
            ids: only these letters.
            resent: only letters that were sent again.
            before_ms: only letters that were given up before this time, in ms since 1970 UTC.
            dry_run: only count them.

        Raises:
            InvalidArgument: there is no condition, or no dead letter has an id; none was purged.
        """
        if ids is None and not resent and before_ms is None:
            raise InvalidArgument("name the letters: by id, those sent again, or before a time")
        queue = QueueRef(dead_letter_topic(group), 0)
        first, end = await self._range(queue)
        for one in ids or ():
            if not first <= one < end:
                raise _no_letter(group, one, first, end)
        if first == end:
            return 0
        marks = await self._marks(group)
        if before_ms is not None:
            asked = OffsetsAt(topics=[queue.topic], time_ms=before_ms)
            answer = await self._ask(OffsetsAnswer, RequestCode.OFFSETS_AT, asked)
            end = answer.offsets[0].offset
        meant = Runs([(first, end)] if ids is None else [(one, one + 1) for one in ids])
        if resent:
            meant = meant.without(meant.without(marks.resent))
        meant = meant.within(first, end).without(marks.purged)
        if len(meant) and not dry_run:
            async with Producer(self._link.address) as producer:
                await _make_marks(producer, group)
                await _mark(producer, group, "purged", meant)
        return len(meant)

    async def _marks(self, group: str) -> LetterMarks:
        """What is known of a group's letters; those of versions before stand in an offset."""
        letters, queue = dead_letter_topic(group), marks_queue(group)
        asked = GetOffsets(group=f"{_RESENT_PREFIX}{group}", topics=[letters])
        done = 0
        if (await self._range(QueueRef(letters, 0)))[1]:
            (kept,) = (await self._ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked)).offsets
            done = max(0, kept.offset)
        marks = LetterMarks(done)
        at, end = await self._range(queue)
        while at < end:
            records = await self._read(queue, at, end, LETTERS_MAX, heads=True)
            if not records:
                break
            for one in records:
                if (mark := decode_mark(one.body)) is not None:
                    marks.note(mark, one.stored_at_ms)
            at = records[-1].offset + 1
        return marks

    async def _page(
        self,
        queue: QueueRef,
        marks: LetterMarks,
        at: int,
        end: int,
        *,
        unsent: bool,
        heads: bool = False,
    ) -> tuple[list[Record], int]:
        """The next letters on the list from an id on, some of them; and where to go on."""
        at = marks.next_listed(at, unsent=unsent)
        records = await self._fetch_letters(queue, at, heads=heads) if at < end else []
        behind = records[-1].offset + 1 if records else end
        listed = [
            one
            for one in records
            if at <= one.offset < end
            and not is_marker(one)
            and marks.next_listed(one.offset, unsent=unsent) == one.offset
        ]
        return listed, behind

    async def _range(self, queue: QueueRef) -> tuple[int, int]:
        described = await self._ask(
            TopicsAnswer, RequestCode.DESCRIBE_TOPICS, DescribeTopics([queue.topic])
        )
        if not described.topics:
            return 0, 0
        asked = QueueRanges([queue.topic])
        ranges = (await self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)).ranges
        return ranges[0].first, ranges[0].end

    async def _read(
        self, queue: QueueRef, start: int, end: int, limit: int, *, heads: bool = False
    ) -> list[Record]:
        found: list[Record] = []
        while start < end and len(found) < limit:
            records = await self._fetch_letters(queue, start, heads=heads)
            if not records:
                break
            found += [one for one in records if start <= one.offset < end and not is_marker(one)]
            start = records[-1].offset + 1
        return found[:limit]

    async def _fetch_letters(
        self, queue: QueueRef, start: int, *, heads: bool = False
    ) -> list[Record]:
        """What one answer holds, from the batch of an offset on; undecodable ones as markers.

        With `heads` the content is left out where it may not be seen: for what shows letters, not for what sends them.
        """
        asked = Fetch([FetchFrom(*queue, start)], bytes_max=_FETCH_BYTES, wait_ms=0, heads=heads)
        body = await self._link.request(
            RequestCode.FETCH, encode(asked), timeout_ms=self._timeout_ms
        )
        answer, batches = decode_fetch_answer(body)
        for state in answer.queues:
            if state.code != ResponseCode.OK:
                raise error_for(state.code, state.sentence)
        return [one for batch in split_batches(batches) for one in readable_records(batch)]

    async def _resend(
        self,
        producer: Producer,
        group: str,
        letters: Sequence[Record],
        body: bytes | None = None,
    ) -> tuple[list[Resent], bool]:
        """Sends letters and marks those that were stored; whether more than letters is at fault."""
        outcomes = await asyncio.gather(
            *(self._send_again(producer, group, letter, body) for letter in letters),
            return_exceptions=True,
        )
        resent, stalled = list[Resent](), False
        for letter, outcome in zip(letters, outcomes, strict=True):
            if isinstance(outcome, SendResult):
                resent.append(Resent(letter.offset, outcome))
            elif isinstance(outcome, MessageQueueError | ValueError):
                resent.append(Resent(letter.offset, None, str(outcome)))
                stalled = stalled or not isinstance(outcome, _FAULTS_OF_LETTERS)
            else:
                raise outcome
        sent = Runs((one.id, one.id + 1) for one in resent if not one.error)
        if len(sent):
            await _mark(producer, group, "resent", sent)
        return resent, stalled

    async def _send_again(
        self, producer: Producer, group: str, letter: Record, body: bytes | None
    ) -> SendResult:
        origin = origin_of(letter)
        if origin is None or not origin.apart:
            return await producer.send(_again(group, letter, body))
        # A copy with its origin fits nowhere: it goes to its own topic, as it came.
        queue = QueueRef(origin.topic, origin.queue_id)
        found = await self._read(queue, origin.offset, origin.offset + 1, 1)
        if not found:
            raise ValueError(
                f"letter {letter.offset} refers to {queue.topic}/{queue.queue_id} at offset"
                f" {origin.offset}, which is no longer there"
            )
        (one,) = found
        return await producer.send(
            Message(
                topic=queue.topic,
                body=one.body if body is None else body,
                key=one.key,
                tag=one.tag,
                headers=one.headers,
            )
        )


async def _make_marks(producer: Producer, group: str) -> None:
    """Before anything is done that is to be marked."""
    await producer.create_topic(marks_queue(group).topic, 1, "forever")


async def _mark(producer: Producer, group: str, kind: Kind, runs: Runs) -> None:
    """Durable on return."""
    topic = marks_queue(group).topic
    for body in encode_marks(kind, list(runs)):
        await producer.send(Message(topic=topic, body=body))


def _no_letter(group: str, one: int, first: int, end: int) -> InvalidArgument:
    return InvalidArgument(
        f"group {group!r} has no dead letter {one} on its list; ids are {first} to {end - 1}"
        if first < end
        else f"group {group!r} has no dead letter {one}: it has none at all"
    )


def _again(group: str, letter: Record, body: bytes | None) -> Message:
    """Returns the message that brings a letter back, as if it had never failed."""
    headers = dict(letter.headers)
    origin = origin_of(letter)
    topic = retry_topic(group) if origin is None else origin.back_to
    if origin is not None and topic == retry_topic(group):
        headers[ORIGIN_HEADER] = msgspec.json.encode(replace(origin, attempt=0)).decode()
    else:
        headers.pop(ORIGIN_HEADER, None)
    return Message(
        topic=topic,
        body=letter.body if body is None else body,
        key=letter.key,
        tag=letter.tag,
        headers=headers,
    )
