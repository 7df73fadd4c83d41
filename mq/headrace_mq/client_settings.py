"""
The settings of producers and consumers, with their defaults, their units and their reasons.

Values only, as in `settings`.
"""

import string
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from headrace_mq._runtime.checks import (
    require,
    require_busy_poll,
    require_pauses,
    require_types,
    require_vanished,
)

__all__ = [
    "DELAY_LEVELS",
    "FETCH_BYTES_MAX",
    "ConnectionSettings",
    "ConsumerSettings",
    "ProducerSettings",
    "RetrySettings",
    "TransactionSettings",
]

MIB = 1 << 20
HOUR_MS = 3_600_000
_SECOND_MS, _MINUTE_MS = 1_000, 60_000
# RocketMQ's 18 levels of delay, by name, in its order.
DELAY_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        **{f"{n}s": n * _SECOND_MS for n in (1, 5, 10, 30)},
        **{f"{n}m": n * _MINUTE_MS for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)},
        **{f"{n}h": n * HOUR_MS for n in (1, 2)},
    }
)

# Half of what a client accepts as one answer: it may be exceeded by one batch.
FETCH_BYTES_MAX = 32 * MIB
# A client id is a name and a UUID, and has at most 255 bytes.
NAME_CHARACTERS_MAX = 100
# As in the names of topics, but for the sign of those that are the broker's own.
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `ProducerSettings` and `ConsumerSettings` that is about the connection."""

    # The name that operators and other members see: 1 to 100 letters, digits, `.`, `_`, `-`. Empty: a new
    # UUID at each start.
    name: str = ""
    # First and longest pause between two connection attempts; doubled in between.
    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 2_000
    # If a broker vanishes, the client notices it after half of this without a byte from it, or after all
    # of this without an acknowledgement. A shorter time also ends connections to a broker whose disk stalls.
    vanished_ms_max: int = 10_000
    # How long, in microseconds, the event loop polls for the next bytes instead of sleeping. It does so
    # only while bytes come within this time: waking up takes longer than the work on a small message. It
    # keeps a processor busy, so leave it at 0 (never) unless you have one to spare.
    busy_poll_us: int = 0

    def __post_init__(self) -> None:
        require(
            len(self.name) <= NAME_CHARACTERS_MAX and _NAME_CHARACTERS.issuperset(self.name),
            f"name has at most {NAME_CHARACTERS_MAX} letters, digits, '.', '_' and '-', not {self.name!r}",
        )
        require_pauses("reconnect_ms", self.reconnect_ms_min, self.reconnect_ms_max)
        require_vanished(self.vanished_ms_max)
        require_busy_poll(self.busy_poll_us)


class ProducerSettings(ConnectionSettings, frozen=True, kw_only=True):
    """How a producer batches, waits and retries; its connection is in the base."""

    # For all attempts together; RocketMQ's 3 s is shorter than a broker restart.
    send_timeout_ms: int = 30_000
    # A batch is sent when it has this many messages or bytes, or when no other batch is on its way.
    batch_messages_max: int = 1_000
    batch_bytes_max: int = MIB
    # Unacknowledged bytes in a producer's buffer; above it `send` waits.
    buffer_bytes_max: int = 32 * MIB
    # lz4 costs about 100 ns per message: use it for large messages and slow networks.
    codec: Literal["none", "lz4", "zstd"] = "none"

    def __post_init__(self) -> None:
        require_types(self)
        super().__post_init__()
        require(self.send_timeout_ms >= 1, "send_timeout_ms must be at least 1")
        require(self.batch_messages_max >= 1, "batch_messages_max must be at least 1")
        require(self.batch_bytes_max >= 1, "batch_bytes_max must be at least 1")
        require(self.buffer_bytes_max >= 1, "buffer_bytes_max must be at least 1")


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a transactional producer gathers transactions, and how it answers checks."""

    # A bundle is sent when it has this many transactions or bytes, or when no other one is on its way. Of
    # a thousand that begin together, a quarter is at the broker while the producer makes the others.
    bundle_transactions_max: int = 250
    bundle_bytes_max: int = MIB
    # How long a request for checks stays at the broker.
    check_wait_ms: int = 15_000
    # Checks that are answered at a time; each may take a connection to your database.
    checkers_max: int = 8
    # A checker that takes longer is cancelled, and asked again later.
    checker_timeout_ms: int = 10_000
    # How soon the producer uses queues that you add to a topic.
    route_refresh_ms: int = 5_000

    def __post_init__(self) -> None:
        require_types(self)
        for name in self.__struct_fields__:
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.bundle_transactions_max <= 4_096, "bundle_transactions_max is at most 4096")
        require(self.bundle_bytes_max <= 2 * MIB, "bundle_bytes_max is at most 2 MiB")


# More levels than people tell apart, and each needs a queue.
PRIORITIES_MAX = 10


class ConsumerSettings(ConnectionSettings, frozen=True, kw_only=True):
    """How a consumer fetches, keeps its place and reports its offsets; its connection is in the base."""

    # Many within the broker's expiry: a consumer may lose some and stay in its group.
    heartbeat_ms: int = 1_000
    # How long the group keeps the queues of a named consumer that has stopped or died, at most the
    # broker's `member_expiry_ms`: time for a restart, in which no one reads these queues. 0, or without a
    # name: other consumers take them over at once.
    away_ms: int = 30_000
    # How a topic's queues are divided; all members of a group must use the same rule. "average" is
    # RocketMQ's default; "sticky" moves the fewest queues when members come and go.
    allocation: Literal["average", "circle", "consistent_hash", "sticky"] = "average"
    # How soon the consumer finds queues that you add to a topic, plus a heartbeat: within 3 s. It looks
    # for missing topics at every heartbeat.
    topics_refresh_ms: int = 2_000
    # How long a fetch that finds no record waits at the broker, and how many bytes one may return.
    fetch_wait_ms: int = 15_000
    fetch_bytes_max: int = MIB
    # After an answer with few records the consumer waits this long before it fetches again, or until a
    # `poll` finds no record: one answer then has several records, and saves round trips. For applications
    # that do not poll all the time. 0: fetch again at once.
    fetch_gather_ms: int = 0
    # Records that your application has and has not acknowledged, per queue (RocketMQ: 1,000); others wait
    # in the consumer.
    in_flight_max: int = 1_000
    # Bytes of bodies in the consumer and your application, per queue (RocketMQ: 100 MiB); one fetch may
    # exceed it.
    in_flight_bytes_max: int = 100 * MIB
    # From the lowest unfinished offset to the highest one that your application has, per queue (RocketMQ:
    # 2,000): because of one slow record, a crash may deliver so many again.
    in_flight_span_max: int = 2_000
    # How often offsets are committed: after a crash, at most the records of this time are delivered again.
    commit_interval_ms: int = 1_000
    # Where a group without a committed offset begins: a number is a time, in milliseconds since 1970
    # UTC. Queues that appear later are always read from their first offset.
    start: Literal["earliest", "latest"] | int = "earliest"
    # With a file the consumer is a broadcast consumer: it reads all queues, like every other one, and
    # keeps its offsets in this file instead of the broker. One file for each consumer.
    broadcast_file: Path | None = None
    # What `Consumer.run` handles in order: the records of a key, those of a queue, or nothing.
    handling: Literal["per_key", "per_queue", "parallel"] = "per_key"
    # Keys (or queues, or records) that `Consumer.run` handles at a time; more only helps handlers
    # that wait for other systems.
    handlers_max: int = 64
    # Levels of priority of its topics: records of higher levels come first (JMS has 10). 1: no priorities.
    priorities: int = 1
    # Once in so many times the lowest level comes first, so that it never waits for long.
    priority_turns: int = 8
    # A handler that takes longer is cancelled and has failed (RocketMQ: 15 min).
    handler_timeout_ms: int = 900_000
    # First and longest pause before a failed record is handled again; doubled in between.
    retry_ms_min: int = 100
    retry_ms_max: int = 10_000
    # Share of the messages, 0 to 1, that are traced: each step is a message to the topic %TRACE%. All
    # consumers trace the same messages. 1 costs more than the work of small handlers.
    trace_share: float = 0.0
    # The broker answers all requests but fetches at once; after this time it is gone.
    request_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        require_types(self)
        super().__post_init__()
        require(self.away_ms >= 0, "away_ms must be 0 or more")
        for name in (
            "heartbeat_ms", "topics_refresh_ms", "fetch_wait_ms", "fetch_bytes_max", "in_flight_max",
            "in_flight_bytes_max", "in_flight_span_max", "commit_interval_ms", "handlers_max",
            "handler_timeout_ms", "request_timeout_ms",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.fetch_gather_ms >= 0, "fetch_gather_ms must be 0 or more")
        require(1 <= self.priorities <= PRIORITIES_MAX, f"priorities must be 1 to {PRIORITIES_MAX}")
        require(self.priority_turns > 1, "priority_turns must be at least 2")
        require(0 <= self.trace_share <= 1, "trace_share must be 0 to 1")
        require(
            self.fetch_bytes_max <= FETCH_BYTES_MAX,
            f"fetch_bytes_max must be at most {FETCH_BYTES_MAX}",
        )
        require(
            not isinstance(self.start, int) or self.start >= 0,
            "start must be earliest, latest, or a time of 0 or more",
        )
        require_pauses("retry_ms", self.retry_ms_min, self.retry_ms_max)


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """When records that failed are handled again, and how often."""

    # After the first attempt; then a record goes to the dead letters (RocketMQ: 16).
    retries_max: int = 16
    # The delay before each retry by its level, the last one for all further ones (RocketMQ's: the
    # first after 10 s, the sixteenth after 2 h, 4 h 45 min 40 s in all).
    levels: tuple[str, ...] = tuple(DELAY_LEVELS)[2:]
    # Of the retry topic (RocketMQ: 1).
    queues: int = 1
    # A letter that is deleted by age is a message lost; choose that where you do not read them.
    dead_letters: Literal["forever", "transient"] = "forever"

    def __post_init__(self) -> None:
        require_types(self)
        require(self.retries_max >= 0, "retries_max must not be negative")
        require(self.queues >= 1, "queues must be at least 1")
        unknown = [level for level in self.levels if level not in DELAY_LEVELS]
        require(
            bool(self.levels) and not unknown,
            f"levels must be one or more of {', '.join(DELAY_LEVELS)}",
        )
