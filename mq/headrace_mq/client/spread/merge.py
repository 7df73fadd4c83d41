"""
Divides what a request names by broker group, and puts the answers of groups together. PURE.

Used by `answers`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from headrace_mq.client.spread.topic_map import TopicMap
from headrace_mq.errors import TopicExists
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    DescribeLag,
    DescribeQueues,
    GroupDescription,
    GroupsAnswer,
    GroupSummary,
    LagAnswer,
    OffsetsAt,
    QueuesAnswer,
    Traffic,
)
from headrace_mq.protocol.bodies import (
    FetchAnswer,
    GetOffsets,
    OffsetsAnswer,
    QueueRanges,
    QueueRangesAnswer,
    TopicIdentity,
    decode,
    decode_fetch_answer,
    encode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = [
    "MERGED",
    "by_owner",
    "fetched",
    "is_empty",
    "one_group",
    "page_of_groups",
    "same_identity",
]


class _OfAQueue(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...


T = TypeVar("T", bound=_OfAQueue)


def by_owner(entries: Iterable[T], topics: TopicMap) -> dict[str, list[T]]:
    """Divides entries by the group that has their queue; an empty name stands for none that is known."""
    parts: dict[str, list[T]] = {}
    for entry in entries:
        owner = topics.owner(QueueRef(entry.topic, entry.queue_id)) or ""
        parts.setdefault(owner, []).append(entry)
    return parts


def _sorted(entries: Iterable[T]) -> list[T]:
    return sorted(entries, key=lambda each: (each.topic, each.queue_id))


def _ranges(answers: Sequence[memoryview]) -> bytes:
    found = [decode(QueueRangesAnswer, each) for each in answers]
    identities = same_identity(one for each in found for one in each.identities)
    ranges = _sorted(one for each in found for one in each.ranges)
    return encode(QueueRangesAnswer(ranges, identities))


def same_identity(told: Iterable[TopicIdentity]) -> list[TopicIdentity]:
    """Returns one entry for each topic.

    Raises:
        TopicExists: groups have topics of one name that were made apart.
    """
    found: dict[str, TopicIdentity] = {}
    for each in told:
        known = found.setdefault(each.topic, each)
        if known.identity != each.identity:
            raise TopicExists(
                f"the broker groups have topics {each.topic!r} that were made apart from each other: use another name, or"
                " delete it in one of them"
            )
        settled, queues = known.settled and each.settled, max(known.queues, each.queues)
        found[each.topic] = replace(known, settled=settled, queues=queues)
    return list(found.values())


def _offsets(answers: Sequence[memoryview]) -> bytes:
    found = [one for each in answers for one in decode(OffsetsAnswer, each).offsets]
    return encode(OffsetsAnswer(_sorted(found)))


def _queues(answers: Sequence[memoryview]) -> bytes:
    found = [one for each in answers for one in decode(QueuesAnswer, each).queues]
    return encode(QueuesAnswer(_sorted(found)))


def _lags(answers: Sequence[memoryview]) -> bytes:
    found = [decode(LagAnswer, each) for each in answers]
    queues = _sorted(one for each in found for one in each.queues)
    return encode(LagAnswer(max((each.now_ms for each in found), default=0), queues))


# What asks about topics, with the kind of its body, and what puts the answers together.
MERGED: Final[Mapping[RequestCode, tuple[type[Any], Callable[[Sequence[memoryview]], bytes]]]] = (
    MappingProxyType(
        {
            RequestCode.QUEUE_RANGES: (QueueRanges, _ranges),
            RequestCode.GET_OFFSETS: (GetOffsets, _offsets),
            RequestCode.OFFSETS_AT: (OffsetsAt, _offsets),
            RequestCode.DESCRIBE_QUEUES: (DescribeQueues, _queues),
            RequestCode.DESCRIBE_LAG: (DescribeLag, _lags),
        }
    )
)


def is_empty(answer: memoryview) -> bool:
    """Whether the answer to a FETCH has nothing to say."""
    told, batches = decode_fetch_answer(answer)
    return not (told.queues or told.picked or batches)


def fetched(answers: Sequence[memoryview]) -> bytes:
    """Returns the answers to parts of a FETCH as one; batches of a queue stay together, because one group has them."""
    found = [decode_fetch_answer(each) for each in answers]
    told = FetchAnswer(
        [one for answer, _ in found for one in answer.queues],
        [one for answer, _ in found for one in answer.picked],
    )
    return encode_fetch_answer(told) + b"".join(batches for _, batches in found)


def page_of_groups(answers: Sequence[GroupsAnswer]) -> GroupsAnswer:
    """Returns the groups of all answers, each once, up to where the shortest page ends."""
    ends = [each.groups[-1].group for each in answers if each.more and each.groups]
    last = min(ends, default=None)
    found: dict[str, GroupSummary] = {}
    for one in (one for each in answers for one in each.groups):
        if last is None or one.group <= last:
            known = found.get(one.group)
            found[one.group] = one if known is None else _together(known, one)
    return GroupsAnswer([found[name] for name in sorted(found)], last is not None)


def _together(one: GroupSummary, other: GroupSummary) -> GroupSummary:
    return GroupSummary(
        one.group,
        max(one.members, other.members),
        one.queues + other.queues,
        one.lag + other.lag,
        Traffic(
            one.fetched.messages_1s + other.fetched.messages_1s,
            one.fetched.bytes_1s + other.fetched.bytes_1s,
            one.fetched.messages_10s + other.fetched.messages_10s,
            one.fetched.bytes_10s + other.fetched.bytes_10s,
        ),
        one.commits or other.commits,
        one.consume and other.consume,
        max(one.retries, other.retries),
    )


def one_group(answers: Sequence[GroupDescription]) -> GroupDescription:
    """Returns a consumer group with the members and topics of all answers; there is at least one."""
    members = {one.member: one for each in answers for one in each.members}
    topics = sorted({topic for each in answers for topic in each.topics})
    rules = [one for each in answers for one in each.rules]
    paused = [one for one in rules if not one.consume]
    return replace(
        answers[0],
        generation=max(each.generation for each in answers),
        members=[members[name] for name in sorted(members)],
        topics=topics,
        rules=(paused or rules)[:1],
    )
