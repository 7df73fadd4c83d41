"""
Administration of dead letters: what a group gave up, and sending it again.

A letter is sent again to where its group handles it: the retry topic of a group that has one, else
the topic it came from. It stays among the dead letters; what was sent again with all others is
remembered by an offset, so that asking twice sends nothing twice.

Sits between: `client`, whose part it is, and the broker's requests to read and to produce.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace_mq.admin.asking import Asking
from headrace_mq.admin.readable import readable_records
from headrace_mq.client.damage import is_marker
from headrace_mq.client.origins import (
    ORIGIN_HEADER,
    Origin,
    dead_letter_topic,
    origin_of,
    retry_topic,
)
from headrace_mq.client.producer import Producer
from headrace_mq.errors import InvalidArgument, MessageQueueError, ResponseCode, error_for
from headrace_mq.message import Message, QueueRef, Record, SendResult
from headrace_mq.protocol.batch import split_batches
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
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

__all__ = ["LETTERS_MAX", "DeadLetter", "DeadLetterAdministration", "Resent"]

# Letters of one answer, and those that are sent again at a time.
LETTERS_MAX = 1_000
_FETCH_BYTES = 1 << 20
_RESENT_PREFIX = "%RESENT%"


class DeadLetter(NamedTuple):
    """One record that a group gave up; `id` is its offset among the group's dead letters."""

    id: int
    origin: Origin | None
    record: Record


class Resent(NamedTuple):
    """What became of one letter that was to be sent again: where it stands, or why it does not."""

    id: int
    sent: SendResult | None
    error: str = ""


class DeadLetterAdministration(Asking):
    """The calls about dead letters."""

    async def dead_letters(
        self, group: str, *, start: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """The dead letters of a group in the order of their ids.

        Args:
            group: whose.
            start: the first id to be told.
            limit: how many at most, up to 1,000.

        Raises:
            InvalidArgument: the limit is out of its range.
        """
        if not 1 <= limit <= LETTERS_MAX:
            raise InvalidArgument(f"the limit is 1 to {LETTERS_MAX}, not {limit}")
        queue = QueueRef(dead_letter_topic(group), 0)
        first, end = await self._dead_range(queue)
        records = await self._read(queue, max(first, start), end, limit)
        return [DeadLetter(one.offset, origin_of(one), one) for one in records]

    async def resend(self, group: str, ids: Sequence[int]) -> list[Resent]:
        """Sends dead letters again, whether that was done before or not; each is reported.

        Raises:
            InvalidArgument: too many at a time, or an id that is no dead letter's; nothing was sent.
        """
        if len(ids) > LETTERS_MAX:
            raise InvalidArgument(f"at most {LETTERS_MAX} letters at a time, not {len(ids)}")
        queue = QueueRef(dead_letter_topic(group), 0)
        first, end = await self._dead_range(queue)
        records = []
        for one in dict.fromkeys(ids):
            found = await self._read(queue, one, end, 1) if first <= one < end else []
            if not found or found[0].offset != one:
                raise InvalidArgument(
                    f"group {group!r} has no dead letter {one}; there are {first} to {end - 1}"
                )
            records += found
        async with Producer(self._link.address) as producer:
            return await self._resend(producer, group, records)

    async def resend_all(self, group: str) -> list[Resent]:
        """Sends every dead letter again that an earlier call did not; each is reported.

        It goes on behind the last letter of the earlier calls and stops at the first that fails. A
        crash in the middle may send up to 1,000 letters twice, and skips none.
        """
        queue = QueueRef(dead_letter_topic(group), 0)
        resender = f"{_RESENT_PREFIX}{group}"
        first, end = await self._dead_range(queue)
        if first == end:
            return []
        asked = GetOffsets(group=resender, topics=[queue.topic])
        (done,) = (await self._ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked)).offsets
        at = max(first, done.offset)
        reported: list[Resent] = []
        async with Producer(self._link.address) as producer:
            while at < end and not (reported and reported[-1].error):
                records = await self._read(queue, at, end, LETTERS_MAX)
                outcomes = await self._resend(producer, group, records)
                failed = [one.id for one in outcomes if one.error]
                at = failed[0] if failed else records[-1].offset + 1 if records else end
                reported += outcomes
                await self._note_resent(resender, queue, at)
                if failed:
                    break
        return reported

    async def _note_resent(self, resender: str, queue: QueueRef, offset: int) -> None:
        offsets = [CommittedOffset(*queue, offset)]
        body = encode(CommitOffsets(resender, "", 0, offsets))
        await self._link.request(RequestCode.COMMIT_OFFSETS, body, timeout_ms=self._timeout_ms)

    async def _dead_range(self, queue: QueueRef) -> tuple[int, int]:
        described = await self._ask(
            TopicsAnswer, RequestCode.DESCRIBE_TOPICS, DescribeTopics([queue.topic])
        )
        if not described.topics:
            return 0, 0
        asked = QueueRanges([queue.topic])
        ranges = (await self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)).ranges
        return ranges[0].first, ranges[0].end

    async def _read(self, queue: QueueRef, start: int, end: int, limit: int) -> list[Record]:
        found: list[Record] = []
        while start < end and len(found) < limit:
            asked = Fetch([FetchFrom(*queue, start)], bytes_max=_FETCH_BYTES, wait_ms=0)
            body = await self._link.request(
                RequestCode.FETCH, encode(asked), timeout_ms=self._timeout_ms
            )
            answer, batches = decode_fetch_answer(body)
            for state in answer.queues:
                if state.code != ResponseCode.OK:
                    raise error_for(state.code, state.sentence)
            records = [one for batch in split_batches(batches) for one in readable_records(batch)]
            if not records:
                break
            found += [one for one in records if start <= one.offset < end and not is_marker(one)]
            start = records[-1].offset + 1
        return found[:limit]

    async def _resend(
        self, producer: Producer, group: str, letters: Sequence[Record]
    ) -> list[Resent]:
        resent = []
        outcomes = await asyncio.gather(
            *(self._send_again(producer, group, letter) for letter in letters),
            return_exceptions=True,
        )
        for letter, outcome in zip(letters, outcomes, strict=True):
            if isinstance(outcome, SendResult):
                resent.append(Resent(letter.offset, outcome))
            elif isinstance(outcome, MessageQueueError | ValueError):
                resent.append(Resent(letter.offset, None, str(outcome)))
            else:
                raise outcome
        return resent

    async def _send_again(self, producer: Producer, group: str, letter: Record) -> SendResult:
        origin = origin_of(letter)
        if origin is None or not origin.apart:
            return await producer.send(_again(group, letter))
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
            Message(topic=queue.topic, body=one.body, key=one.key, tag=one.tag, headers=one.headers)
        )


def _again(group: str, letter: Record) -> Message:
    """Returns the message that brings a letter back, as if it had never failed."""
    headers = dict(letter.headers)
    origin = origin_of(letter)
    topic = retry_topic(group) if origin is None else origin.back_to
    if origin is not None and topic == retry_topic(group):
        headers[ORIGIN_HEADER] = msgspec.json.encode(replace(origin, attempt=0)).decode()
    else:
        headers.pop(ORIGIN_HEADER, None)
    return Message(topic=topic, body=letter.body, key=letter.key, tag=letter.tag, headers=headers)
