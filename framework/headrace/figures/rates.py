"""
Rates of a broker from two looks at it: what counts up, divided by the time between.

    first look ──┐
                 ├─▶ messages, bytes and processor time per second; lags as they are now
    second look ─┘

Messages that came in, bytes of connections and processor time are counters of the broker, so their rates are exact.
What was given out, and bytes of topics, the broker counts by the second: they are of its last whole second.
Used by `headrace top` and the console. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.figures.sample import TopSample

if TYPE_CHECKING:
    from headrace_mq.protocol.administration import BrokerStatus, QueueDescription

__all__ = [
    "BrokerRates",
    "ConnectionRates",
    "GroupRates",
    "TopRates",
    "TopicRates",
    "rates",
]

_PER_S: Final = 1_000
_PERCENT: Final = 100


class BrokerRates(NamedTuple):
    """The broker as a whole; rates are per second, None where the broker does not tell.

    Attributes:
        software: its version.
        cpu_percent: of one processor.
        memory_bytes: what it has in memory.
        disk_percent: how full its disk is.
        disk_free_bytes: what is free on it.
        log_bytes: what its logs hold.
        log_growth: by so many bytes per second they grow.
        messages_in, bytes_in, messages_out, bytes_out: what goes through.
        connections, topics, queues, groups: how many there are.
        throttled: requests that were held up by quotas per second.
        held: those that wait now.
        refuses: why no message is taken or acknowledged; empty: they are.
    """

    software: str | None
    cpu_percent: float | None
    memory_bytes: int | None
    disk_percent: float | None
    disk_free_bytes: int | None
    log_bytes: int
    log_growth: float
    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    connections: int
    topics: int
    queues: int
    groups: int
    throttled: float
    held: int
    refuses: str


class TopicRates(NamedTuple):
    """A topic: how many messages it holds, and what goes in and out of it per second."""

    topic: str
    queues: int
    messages: int
    messages_in: float
    bytes_in: int
    messages_out: int
    bytes_out: int


class GroupRates(NamedTuple):
    """A consumer group.

    Attributes:
        group: its name.
        members: how many it has.
        lag: messages that it has not committed; None: it keeps its offsets itself.
        lag_ms: for how long the oldest of them waits; None: it was not asked.
        change: by so many messages per second the lag grows; below 0: it shrinks.
        messages_out, bytes_out: what it is given per second.
        paused: whether an operator paused it.
    """

    group: str
    members: int
    lag: int | None
    lag_ms: int | None
    change: float | None
    messages_out: int
    bytes_out: int
    paused: bool


class ConnectionRates(NamedTuple):
    """A connection: who it is, and what goes through it per second; `throttled_ms` is held up per second."""

    client_id: str
    address: str
    software: str
    roles: str
    groups: str
    messages_in: float
    bytes_in: float
    bytes_out: float
    throttled_ms: float


class TopRates(NamedTuple):
    """What happened between two looks.

    Attributes:
        seconds: between them.
        broker: as a whole; None: it may not be read.
        topics: by name.
        groups: by name.
        connections: the oldest first; without those of replicas.
        replicas: connections of brokers that follow this one.
        denied: sentences about what this user may not read.
    """

    seconds: float
    broker: BrokerRates | None
    topics: list[TopicRates]
    groups: list[GroupRates]
    connections: list[ConnectionRates]
    replicas: list[ConnectionRates]
    denied: Sequence[str]


def rates(before: TopSample, now: TopSample) -> TopRates:
    """Returns the rates between two looks at one broker.

    Args:
        before: the earlier look.
        now: the later one.
    """
    from headrace_mq.protocol.frame import REPLICA_SOFTWARE

    seconds = max(1, now.at_ms - before.at_ms) / _PER_S
    connections = list(_connections(before, now, seconds))
    return TopRates(
        seconds,
        _broker(before, now, seconds),
        list(_topics(before, now, seconds)),
        list(_groups(before, now, seconds)),
        [each for each in connections if each.software != REPLICA_SOFTWARE],
        [each for each in connections if each.software == REPLICA_SOFTWARE],
        now.denied,
    )


def _grown(before: float, now: float, seconds: float) -> float:
    """Returns by how much a counter grew per second; one that began again did not shrink."""
    return max(0, now - before) / seconds


def _broker(before: TopSample, now: TopSample, seconds: float) -> BrokerRates | None:
    status, earlier = now.status, before.status
    if status is None:
        return None
    earlier = earlier or status
    process, old = _process(status), _process(earlier)
    size = sum(log.end - log.first for log in status.logs)
    end = sum(log.end for log in status.logs)
    was = sum(log.end for log in earlier.logs)
    disk = process and _told(process.disk_bytes)
    free = process and _told(process.disk_free_bytes)
    return BrokerRates(
        software=process.software if process else None,
        cpu_percent=_PERCENT * _grown(old.cpu_ms, process.cpu_ms, seconds) / _PER_S
        if process and old
        else None,
        memory_bytes=process and _told(process.memory_bytes),
        disk_percent=_PERCENT * (disk - free) / disk if disk and free is not None else None,
        disk_free_bytes=free,
        log_bytes=size,
        log_growth=_grown(was, end, seconds),
        messages_in=status.produced.messages_1s,
        bytes_in=status.produced.bytes_1s,
        messages_out=status.fetched.messages_1s,
        bytes_out=status.fetched.bytes_1s,
        connections=status.connections,
        topics=status.topics,
        queues=status.queues,
        groups=status.groups,
        throttled=_grown(earlier.throttled, status.throttled, seconds),
        held=status.held,
        refuses=status.refuses or status.shortage,
    )


def _process(status: "BrokerStatus") -> Any:
    return status.process[0] if status.process else None


def _told(value: int) -> int | None:
    return value if value >= 0 else None


def _topics(before: TopSample, now: TopSample, seconds: float) -> "Iterable[TopicRates]":
    ends = {(one.topic, one.queue_id): one.end for one in before.queues}
    by_topic: dict[str, list[QueueDescription]] = defaultdict(list)
    for one in now.queues:
        by_topic[one.topic].append(one)
    for topic, queues in sorted(by_topic.items()):
        # A queue that is new has had all its messages since, unless nothing was known before.
        grown = sum(
            max(0, one.end - ends.get((topic, one.queue_id), one.first if ends else one.end))
            for one in queues
        )
        yield TopicRates(
            topic,
            len(queues),
            sum(one.end - one.first for one in queues),
            grown / seconds,
            sum(one.produced.bytes_1s for one in queues),
            sum(one.fetched.messages_1s for one in queues),
            sum(one.fetched.bytes_1s for one in queues),
        )


def _groups(before: TopSample, now: TopSample, seconds: float) -> "Iterable[GroupRates]":
    lags = {one.group: one.lag for one in before.groups if one.commits}
    for one in sorted(now.groups, key=lambda each: each.group):
        known = one.commits and one.group in lags
        yield GroupRates(
            one.group,
            one.members,
            one.lag if one.commits else None,
            (now.oldest_ms.get(one.group) if one.lag else 0) if one.commits else None,
            (one.lag - lags[one.group]) / seconds if known else None,
            one.fetched.messages_1s,
            one.fetched.bytes_1s,
            not one.consume,
        )


def _connections(before: TopSample, now: TopSample, seconds: float) -> "Iterable[ConnectionRates]":
    # A client may connect again under its name: it then begins to count again.
    known = {(one.client_id, one.address, one.since_ms): one for one in before.connections}
    for one in now.connections:
        was = known.get((one.client_id, one.address, one.since_ms))

        def grown(name: str, one: Any = one, was: Any = was) -> float:
            return _grown(0 if was is None else getattr(was, name), getattr(one, name), seconds)

        yield ConnectionRates(
            one.client_id,
            one.address,
            one.software,
            " ".join(one.roles),
            " ".join(one.groups),
            grown("produced"),
            grown("received_bytes"),
            grown("sent_bytes"),
            grown("throttled_ms"),
        )
