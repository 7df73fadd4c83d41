"""
What each request needs: an action, a resource, and how the resource stands in its body. PURE.

    DELETE_QUEUES    delete     the topic it names
    SET_QUOTA        administer the cluster
    HELLO            nothing    it comes before the login

The broker asks the policy before it serves a request. Some requests are asked about by their own handlers, which
have read them: PRODUCE for each batch, FETCH and FIND_MESSAGES for content or heads, SET_PASSWORD and EXPLAIN_ACCESS for
another user.

Used by the broker; uses the bodies of requests. A test fails for a code that is not in the table.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace_mq.access.resources import ALL_NAMES, Action, Ask, ResourceKind
from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    DeleteQueues,
    DescribeGroup,
    DescribeLag,
    DescribeQueues,
    FreezeQueues,
    OffsetsAt,
    ResetOffsets,
)
from headrace_mq.protocol.bodies import (
    Body,
    CommitOffsets,
    CreateTopic,
    DescribeTopics,
    GetOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    QueueRanges,
    UnlockQueues,
    decode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import NoteChange, SetBacklogLimit, SetGroup
from headrace_mq.protocol.releases import ReleaseMessages
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import EndTransactions, TakeChecks

__all__ = ["NEEDS", "Need", "TopicsKnown"]

# How many queues a topic has; 0: there is no such topic.
TopicsKnown = Callable[[str], int]
Asks = Callable[[memoryview, TopicsKnown], Iterable[Ask]]


class Need(NamedTuple):
    """What one kind of request needs.

    Attributes:
        text: an action and a resource in words, for people.
        asks: reads from a body what is to be asked; None: its handler asks.
        before_login: whether it is served to clients that have not logged in.
    """

    text: str
    asks: Asks | None
    before_login: bool = False


def _nothing(_body: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
    return ()


def _cluster(action: Action) -> Need:
    asked = (Ask(action, ResourceKind.CLUSTER),)
    return Need(f"{action} cluster", lambda _body, _known: asked)


def _one(action: Action, body: type[Body], field: ResourceKind) -> Need:
    """For a body with one name, in the field that is called like its kind."""

    def asks(data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
        return (Ask(action, field, getattr(decode(body, data), field)),)

    return Need(f"{action} {field}:NAME", asks)


def _topics(action: Action, body: type[Body]) -> Need:
    def asks(data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
        topics: list[str] = getattr(decode(body, data), "topics")  # noqa: B009 - not all bodies have it
        return [Ask(action, ResourceKind.TOPIC, topic) for topic in dict.fromkeys(topics)]

    return Need(f"{action} topic:NAME of each", asks)


def _all(action: Action, kind: ResourceKind) -> Need:
    asked = (Ask(action, kind, ALL_NAMES),)
    return Need(f"{action} {kind}:*", lambda _body, _known: asked)


def _heartbeat(data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
    group = decode(Heartbeat, data).group
    return (Ask(Action.CONSUME, ResourceKind.GROUP, group),) if group else ()


def _join(data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
    request = decode(JoinGroup, data)
    yield Ask(Action.CONSUME, ResourceKind.GROUP, request.group)
    for topic in dict.fromkeys(request.topics):
        yield Ask(Action.CONSUME, ResourceKind.TOPIC, topic)


def _create(data: memoryview, known: TopicsKnown) -> Iterable[Ask]:
    request = decode(CreateTopic, data)
    queues = known(request.topic)
    action = Action.CREATE
    if queues:
        action = Action.UPDATE if request.queues > queues else Action.READ
    yield Ask(action, ResourceKind.TOPIC, request.topic)


def _describe_topics(data: memoryview, known: TopicsKnown) -> Iterable[Ask]:
    request = decode(DescribeTopics, data)
    if not request.topics:
        yield Ask(Action.READ, ResourceKind.TOPIC, ALL_NAMES)
    for topic in dict.fromkeys(request.topics):
        missing = request.create_missing and not known(topic)
        yield Ask(Action.CREATE if missing else Action.READ, ResourceKind.TOPIC, topic)


def _clone(data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
    request = decode(CloneOffsets, data)
    yield Ask(Action.READ, ResourceKind.GROUP, request.source)
    yield Ask(Action.UPDATE, ResourceKind.GROUP, request.target)


def _note(data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
    group = decode(NoteChange, data).group
    yield (
        Ask(Action.UPDATE, ResourceKind.GROUP, group)
        if group
        else Ask(Action.ADMINISTER, ResourceKind.CLUSTER)
    )


def _cancel(_data: memoryview, _known: TopicsKnown) -> Iterable[Ask]:
    # The number of a message says nothing of its topic, and can be guessed.
    yield Ask(Action.DELETE, ResourceKind.TOPIC, SCHEDULE_TOPIC)


NEEDS: Mapping[int, Need] = MappingProxyType(
    {
        RequestCode.HELLO: Need("nothing", _nothing, before_login=True),
        RequestCode.LOGIN: Need("nothing", _nothing, before_login=True),
        RequestCode.HEARTBEAT: Need("consume group:NAME", _heartbeat),
        RequestCode.PRODUCE: Need("publish topic:NAME of each batch", None),
        RequestCode.FETCH: Need("consume topic:NAME of each queue, and the group; for heads read topic:NAME", None),
        RequestCode.COMMIT_OFFSETS: _one(Action.CONSUME, CommitOffsets, ResourceKind.GROUP),
        RequestCode.GET_OFFSETS: _one(Action.READ, GetOffsets, ResourceKind.GROUP),
        RequestCode.JOIN_GROUP: Need("consume group:NAME, and each topic", _join),
        RequestCode.LEAVE_GROUP: _one(Action.CONSUME, LeaveGroup, ResourceKind.GROUP),
        # The client id stands in the message that is answered, and cannot be guessed.
        RequestCode.REPLY: Need("to be logged in", _nothing),
        RequestCode.CREATE_TOPIC: Need("create topic:NAME; of one that exists, read or update", _create),
        RequestCode.DESCRIBE_TOPICS: Need("read topic:NAME of each; create if one is to be made", _describe_topics),
        RequestCode.QUEUE_RANGES: _topics(Action.READ, QueueRanges),
        RequestCode.DESCRIBE_BROKER: _cluster(Action.READ),
        RequestCode.DESCRIBE_QUEUES: _topics(Action.READ, DescribeQueues),
        RequestCode.FREEZE_QUEUES: _one(Action.UPDATE, FreezeQueues, ResourceKind.TOPIC),
        RequestCode.DELETE_QUEUES: _one(Action.DELETE, DeleteQueues, ResourceKind.TOPIC),
        RequestCode.FIND_MESSAGES: Need("consume topic:NAME; for heads read topic:NAME", None),
        RequestCode.OFFSETS_AT: _topics(Action.READ, OffsetsAt),
        RequestCode.RESET_OFFSETS: _one(Action.UPDATE, ResetOffsets, ResourceKind.GROUP),
        RequestCode.CLONE_OFFSETS: Need("read group:SOURCE, update group:TARGET", _clone),
        RequestCode.DELETE_GROUP: _one(Action.DELETE, DeleteGroup, ResourceKind.GROUP),
        RequestCode.LOCK_QUEUES: _one(Action.CONSUME, LockQueues, ResourceKind.GROUP),
        RequestCode.UNLOCK_QUEUES: _one(Action.CONSUME, UnlockQueues, ResourceKind.GROUP),
        RequestCode.CANCEL_SCHEDULED: Need(f"delete topic:{SCHEDULE_TOPIC}", _cancel),
        RequestCode.DESCRIBE_SCHEDULE: _cluster(Action.READ),
        RequestCode.DESCRIBE_PRODUCERS: _cluster(Action.READ),
        RequestCode.END_TRANSACTIONS: _one(Action.PUBLISH, EndTransactions, ResourceKind.GROUP),
        RequestCode.TAKE_CHECKS: _one(Action.PUBLISH, TakeChecks, ResourceKind.GROUP),
        RequestCode.DESCRIBE_TRANSACTIONS: _cluster(Action.READ),
        RequestCode.SET_QUOTA: _cluster(Action.ADMINISTER),
        RequestCode.DESCRIBE_QUOTAS: _cluster(Action.READ),
        RequestCode.SET_BACKLOG_LIMIT: _one(Action.UPDATE, SetBacklogLimit, ResourceKind.GROUP),
        RequestCode.DESCRIBE_BACKLOGS: _cluster(Action.READ),
        RequestCode.LIST_GROUPS: _all(Action.READ, ResourceKind.GROUP),
        RequestCode.DESCRIBE_GROUP: _one(Action.READ, DescribeGroup, ResourceKind.GROUP),
        RequestCode.DESCRIBE_LAG: _one(Action.READ, DescribeLag, ResourceKind.GROUP),
        RequestCode.LIST_CONNECTIONS: _cluster(Action.READ),
        RequestCode.BROKER_STATUS: _cluster(Action.READ),
        RequestCode.DESCRIBE_SETTINGS: _cluster(Action.READ),
        RequestCode.SET_GROUP: _one(Action.UPDATE, SetGroup, ResourceKind.GROUP),
        RequestCode.RELEASE_MESSAGES: _one(Action.DELETE, ReleaseMessages, ResourceKind.TOPIC),
        # A replica gets every byte of every topic.
        RequestCode.FOLLOW: _cluster(Action.ADMINISTER),
        RequestCode.HAND_OVER: _cluster(Action.ADMINISTER),
        RequestCode.NOTE_CHANGE: Need("update group:NAME; without a group, administer cluster", _note),
        RequestCode.SET_USER: _cluster(Action.ADMINISTER),
        RequestCode.SET_PASSWORD: Need("administer cluster; nothing for one's own", None),
        RequestCode.LIST_USERS: _cluster(Action.ADMINISTER),
        RequestCode.SET_RULE: _cluster(Action.ADMINISTER),
        RequestCode.LIST_RULES: _cluster(Action.ADMINISTER),
        RequestCode.EXPLAIN_ACCESS: Need("administer cluster; nothing for oneself", None),
        # At a name server: clients go where it says.
        RequestCode.REGISTER: _cluster(Action.ADMINISTER),
        RequestCode.ROUTES: Need("to be logged in", _nothing),
    }
)  # fmt: skip
