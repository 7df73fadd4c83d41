"""
Finds single messages by key or id, their producers, and what consumers did with them.

A part of `AdminClient`; sends FIND_MESSAGES, FETCH and DESCRIBE_PRODUCERS, and reads the trace topic.
"""

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from headrace_mq.access.heads import consumption
from headrace_mq.admin.readable import StoredBatch, readable_records, stored_batch
from headrace_mq.admin.users import UserAdministration
from headrace_mq.client.fetch.damage import is_marker
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, TraceStep, decode_step
from headrace_mq.errors import RequestTimeout, ResponseCode, TopicNotFound, error_for
from headrace_mq.message import QueueRef, Record
from headrace_mq.message_id import MessageId
from headrace_mq.protocol.administration import (
    DescribeProducers,
    FindMessages,
    ProducerDescription,
    ProducersAnswer,
    decode_find_answer,
)
from headrace_mq.protocol.batch import check_body, check_head, split_batches
from headrace_mq.protocol.bodies import Fetch, FetchFrom, decode_fetch_answer, encode
from headrace_mq.protocol.codes import RequestCode

__all__ = ["FIND_LIMIT_MAX", "MessageSearch"]

# Steps of one message: a group that retries it for ever does not fill the screen.
STEPS_SHOWN_MAX = 1_000
# Messages of one `find`: all of them are in memory at once.
FIND_LIMIT_MAX = 10_000
# What one answer carries; a broker takes a few milliseconds for it.
_ANSWER_MESSAGES_MAX = 1_000
_ANSWER_BYTES_MAX = 1 << 20
_NEVER_MS = (1 << 63) - 1
# The broker's limit for one request.
_PRODUCERS_PER_REQUEST_MAX = 1_000


class MessageSearch(UserAdministration):
    """The calls that find messages."""

    async def find(
        self,
        topic: str,
        key: str,
        *,
        from_ms: int = 0,
        to_ms: int = _NEVER_MS,
        limit: int = 100,
    ) -> list[Record]:
        """The messages of a key, in the order in which they were stored.

        Args:
            topic: where to search.
            key: of the messages, exactly; not empty.
            from_ms: stored at this time or later, ms since 1970 UTC.
            to_ms: stored before this time.
            limit: the first so many, 1 to FIND_LIMIT_MAX; for others begin at a later time.

        Raises:
            ValueError: `limit` is out of its range.
            InvalidArgument: the key is empty or too long.
            TopicNotFound: no such topic.
            RequestTimeout: the search took longer than a call may; ask for a shorter time range.
        """
        if not 1 <= limit <= FIND_LIMIT_MAX:
            raise ValueError(f"limit is 1 to {FIND_LIMIT_MAX}, not {limit}")
        wanted = FindMessages(
            topic, key, from_ms, to_ms, min(limit, _ANSWER_MESSAGES_MAX), _ANSWER_BYTES_MAX
        )
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                return await self._collect(wanted, limit)
        except TimeoutError as error:
            raise RequestTimeout(
                f"the search took longer than {self._timeout_ms} ms; ask for a shorter time range,"
                " or allow more time"
            ) from error

    async def message(self, message_id: str) -> Record | None:
        """The message of an id, `topic:queue:offset`; None if it is not there (any more).

        None also where no reader can decode it: `batch_of` tells.

        Raises:
            ValueError: it is no message id.
            QueueNotFound: there is no such topic or queue.
        """
        _, offset = MessageId.parse(message_id)
        for batch in await self._batches_of(message_id):
            for record in readable_records(batch):
                if record.offset == offset and not is_marker(record):
                    return record
        return None

    async def batch_of(self, message_id: str) -> StoredBatch | None:
        """The batch that holds a message; None if it is not there (any more). Raises as `message`."""
        _, offset = MessageId.parse(message_id)
        for batch in await self._batches_of(message_id):
            found = stored_batch(batch)
            if found.header.base_offset <= offset < found.header.next_offset:
                return found
        return None

    async def _batches_of(self, message_id: str) -> list[memoryview]:
        queue, offset = MessageId.parse(message_id)
        # One byte: the batch that holds it, and no other.
        asked = Fetch([FetchFrom(*queue, offset)], bytes_max=1, wait_ms=0, heads=True)
        data = await self._link.request(
            RequestCode.FETCH, encode(asked), timeout_ms=self._timeout_ms
        )
        answer, batches = decode_fetch_answer(data)
        for state in answer.queues:
            if state.code not in {ResponseCode.OK, ResponseCode.OFFSET_OUT_OF_RANGE}:
                raise error_for(state.code, state.sentence)
        found = list(split_batches(batches))
        for batch in found:
            check_head(batch)
            check_body(batch)
        return found

    async def producers(self, records: Iterable[Record]) -> dict[int, ProducerDescription]:
        """The producers of these records, by `Record.producer_id`, as far as the broker remembers.

        It remembers the 10,000 producers that connected last. Messages without a producer id
        (`send_oneway`) and those of the schedule have no entry.
        """
        ids = sorted({record.producer_id for record in records} - {0})
        found: dict[int, ProducerDescription] = {}
        for at in range(0, len(ids), _PRODUCERS_PER_REQUEST_MAX):
            asked = DescribeProducers(ids[at : at + _PRODUCERS_PER_REQUEST_MAX])
            answer = await self._ask(ProducersAnswer, RequestCode.DESCRIBE_PRODUCERS, asked)
            found |= {one.producer_id: one for one in answer.producers}
        return found

    async def steps(self, message_id: str) -> list[TraceStep]:
        """What consumers that trace did with a message, in order of time; the first 1,000 steps.

        The message itself says when it was produced and stored, and by which producer. Details are left out where you
        may not consume the topic of the message.

        Args:
            message_id: `topic:queue:offset`, where it stood first: a retried message keeps its id.

        Raises:
            ValueError: it is no message id.
            RequestTimeout: the search took longer than a call may.
            NotPermitted: you may not read the steps; or as `may` raises it.
        """
        (topic, _), _ = MessageId.parse(message_id)
        try:
            records = await self.find(TRACE_TOPIC, message_id, limit=STEPS_SHOWN_MAX)
        except TopicNotFound:
            return []
        found: Iterator[TraceStep | None] = (decode_step(record.body) for record in records)
        # What a handler failed with may quote the message.
        ask = consumption(topic)
        if records and not (await self.may(ask.action, ask.resource)).allowed:
            found = (step and msgspec.structs.replace(step, detail="") for step in found)
        # Steps told by several consumers meet in the topic in the order of their arrival.
        return sorted((step for step in found if step is not None), key=lambda step: step.at_ms)

    async def _collect(self, wanted: FindMessages, limit: int) -> list[Record]:
        # By their places: where the broker compacts meanwhile, a search may come by them twice.
        found: dict[tuple[QueueRef, int], Record] = {}
        log, position = "", 0
        while True:
            asked = FindMessages(
                wanted.topic, wanted.key, wanted.from_ms, wanted.to_ms,
                wanted.messages_max, wanted.bytes_max, log, position, heads=True,
            )  # fmt: skip
            data = await self._link.request(
                RequestCode.FIND_MESSAGES, encode(asked), timeout_ms=self._timeout_ms
            )
            answer, batches = decode_find_answer(data)
            for batch in split_batches(batches):
                for one in readable_records(batch):
                    if one.key == wanted.key:
                        found[one.queue, one.offset] = one
            log, position = answer.log, answer.position
            if not log or len(found) >= limit:
                return list(found.values())[:limit]
