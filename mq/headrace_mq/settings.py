"""
Every setting of the queue with its default, its unit and its reason, validated once.

Values only: nothing here reads the environment or a file; the command line does.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from headrace_mq._runtime.checks import require, require_pauses, require_types, require_vanished
from headrace_mq.budgets import BudgetSettings
from headrace_mq.connections import ConnectionSettings, require_busy_poll

__all__ = [
    "ArchiveSettings",
    "BrokerSettings",
    "ConsumerSettings",
    "ProducerSettings",
    "RetrySettings",
    "StoreSettings",
    "SuperviseSettings",
    "TransactionSettings",
]

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
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


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the broker keeps messages on disk."""

    # One broker per directory.
    directory: Path
    # A segment is the unit of deletion; 1 GiB is RocketMQ's size.
    segment_bytes: int = GIB
    # "always": an ack means fdatasync returned. "interval": acks from the page cache.
    flush: Literal["always", "interval"] = "always"
    # RocketMQ's timer: what a power cut may take in "interval" mode.
    flush_interval_ms: int = 500
    # Age of a segment's last message above which it may go (RocketMQ: 72 h); topics kept forever
    # have no limit of any kind.
    transient_age_ms: int = 72 * HOUR_MS
    # Size above which the oldest transient segments go before their age; 0: no limit.
    transient_bytes_max: int = 0
    # A message that some group has not consumed outlives its age up to this: a command must not
    # be lost over a long weekend, and a forgotten group must not keep the log forever. 0: not at
    # all (EQueue's and RocketMQ's way).
    unconsumed_ms_max: int = 168 * HOUR_MS
    # How often what was seen to age is written down: a machine that loses its power forgets so much of
    # it, and messages stay that much longer. Restarts of the broker alone forget nothing.
    timeline_keep_ms: int = 60_000
    # A clock that is set by more is an alarm for a day: somebody, or a battery, was wrong. Smaller steps
    # are those of a time server; they are in the log.
    clock_jump_ms_min: int = 60_000
    # How often the rules are applied (EQueue: 10 s).
    retention_interval_ms: int = 10_000
    # Segments that go at a time (RocketMQ: 10): a mistake is noticed while most is still there.
    segments_deleted_max: int = 10
    # A segment of topics that are compacted: the newest one stays as it is, so it is smaller.
    compact_segment_bytes: int = 64 * MIB
    # Share of segments not looked at yet in all of them from which on they are compacted (Kafka: 50 %).
    compact_dirty_percent: int = 50
    # How often that is looked at (Kafka: 15 s).
    compact_interval_ms: int = 15_000
    # A message stays this long whatever supersedes it: who follows a topic sees every change.
    compact_lag_ms: int = 60_000
    # How long a message without a body is kept, once what it deletes is gone, so that who reads slowly
    # hears of it too (Kafka: 24 h).
    tombstone_ms: int = 24 * HOUR_MS
    # Memory for the keys of one compaction: about 500,000 of them (Kafka: 128 MiB).
    compact_memory_bytes: int = 128 * MIB
    # What a compaction reads in a second, so that disk and processor are there for messages; 0: all it
    # can.
    compact_bytes_per_s: int = 16 * MIB
    # Share of the disk above which new messages are refused (RocketMQ: 90 %); 100: never.
    disk_refuse_percent: int = 90
    # Share of the disk above which consumed transient messages go before their age (RocketMQ: 75 %
    # starts deletion at any hour); 100: never.
    disk_delete_percent: int = 75
    # How often the disk is looked at: how soon sending goes on once there is room.
    disk_look_ms: int = 1_000

    def __post_init__(self) -> None:
        require_types(self)
        require(self.segment_bytes >= 64 * KIB, "segment_bytes must be at least 64 KiB")
        require(self.flush_interval_ms >= 1, "flush_interval_ms must be at least 1")
        require(
            self.compact_segment_bytes >= 64 * KIB, "compact_segment_bytes must be at least 64 KiB"
        )
        require(
            self.compact_memory_bytes >= 64 * KIB, "compact_memory_bytes must be at least 64 KiB"
        )
        for name in (
            "transient_bytes_max", "unconsumed_ms_max", "compact_lag_ms", "tombstone_ms",
            "compact_bytes_per_s",
        ):  # fmt: skip
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        for name in (
            "transient_age_ms", "retention_interval_ms", "segments_deleted_max", "disk_look_ms",
            "compact_interval_ms", "timeline_keep_ms", "clock_jump_ms_min",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("disk_refuse_percent", "disk_delete_percent", "compact_dirty_percent"):
            require(1 <= getattr(self, name) <= 100, f"{name} must be 1 to 100")


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the broker archives its messages in PostgreSQL, and reads them back."""

    # postgresql://USER@HOST/DATABASE; `headrace archive upgrade` makes the tables.
    url: str
    # Of each log, kept on the disk beside what is not archived yet: readers that are hours behind
    # need no database.
    window_bytes: int = 4 * GIB
    # Log that goes into one transaction: some 30,000 small messages, a tenth of a second.
    transaction_bytes: int = 4 * MIB
    # Rest after everything was archived: few transactions while little comes.
    interval_ms: int = 100
    # First and longest pause after a failure; doubled in between.
    retry_ms_min: int = 100
    retry_ms_max: int = 10_000
    # Longest wait for a connection, and for one statement or the copy of one transaction.
    connect_timeout_ms: int = 10_000
    statement_timeout_ms: int = 60_000
    # Messages that are read back at a time (EQueue: 10,000), and their bytes beside the last one.
    block_messages_max: int = 10_000
    block_bytes_max: int = 8 * MIB
    # Memory for blocks that were read back, over all queues.
    cache_bytes: int = 64 * MIB
    # Somebody is told when the oldest message has waited for this long, or this much waits.
    alarm_age_ms: int = 60_000
    alarm_bytes: int = GIB
    # New messages are refused while more than this waits: hours of a database that is away, and not
    # the whole disk.
    backlog_bytes_max: int = 16 * GIB

    def __post_init__(self) -> None:
        require_types(self)
        require(
            self.url.startswith(("postgresql://", "postgresql+asyncpg://")),
            "the archive is a database of PostgreSQL: postgresql://USER@HOST/DATABASE",
        )
        require(self.window_bytes >= 0, "window_bytes must not be negative")
        for name in self.__struct_fields__:
            if name not in {"url", "window_bytes"}:
                require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require_pauses("retry_ms", self.retry_ms_min, self.retry_ms_max)


class BrokerSettings(BudgetSettings, frozen=True, kw_only=True):
    """How a broker listens, and where every one of its limits stands; budgets are in the base."""

    # Where the files are, and how they are kept.
    store: StoreSettings
    # Reachable from this machine alone until somebody decides otherwise.
    host: str = "127.0.0.1"
    # 0 takes a free port, printed in the ready line.
    port: int = 9876
    # A topic comes into being with its first message; off where a typing error must not make one.
    auto_create_topics: bool = True
    # EQueue's and RocketMQ's default for a new topic.
    default_queues: int = 4
    # A frame before the handshake may hold a client's name and no more.
    frame_bytes_before_hello_max: int = 64 * KIB
    # 4 MiB of payload, RocketMQ's message limit, and 64 KiB for what surrounds it.
    frame_bytes_max: int = 4 * MIB + 64 * KIB
    # How long one frame may take to arrive: the largest at 1.2 Mbit/s. A client that sends byte by
    # byte is turned away after twice that at the latest.
    frame_ms_max: int = 30_000
    # A client that vanished without a word (power, cable) is noticed after half of this in silence,
    # or after all of it while it takes nothing of what waits for it.
    vanished_ms_max: int = 60_000
    # How long the event loop looks again and again for the next bytes, in microseconds, instead of going
    # to sleep, while they come no further apart than this: waking up takes longer than the work on a
    # small message. It keeps a processor busy, so 0, never, unless there is one to spare.
    busy_poll_us: int = 0
    # Answer bytes not yet read by a connection, above which no more is read from it.
    outgoing_bytes_max: int = 16 * MIB
    # Longest wait of a fetch that finds nothing (RocketMQ: 15 s).
    fetch_wait_ms_max: int = 15_000
    # What one fetch looks at of topics of which it wants some messages: about 35,000 messages of
    # 100 bytes, so that it needs few answers to find one of millions.
    scan_bytes_max: int = 4 * MIB
    # Processes that look through backlogs of which little is wanted, so that nobody waits for that. Two
    # use both processors of a small machine; 35 MiB each while there is such a backlog. 0: none.
    filter_processes_max: int = 2
    # Parked fetches over all connections; each costs about 1 KiB.
    parked_fetches_max: int = 16_384
    # A member that has not been heard of for this long has left (RocketMQ scans at 120 s).
    member_expiry_ms: int = 30_000
    # A member's locks on queues may go to others after this silence: ten heartbeats missed. Well
    # below `member_expiry_ms`, so that what another member is to have does not wait for a member
    # that hangs (RocketMQ renews every 20 s and waits 60 s).
    lock_expiry_ms: int = 10_000
    # How often committed offsets reach the disk; a crash means redelivery, never loss.
    offsets_flush_ms: int = 1_000
    # Scheduled messages that wait at a time; each takes 24 bytes of memory, so 4 million 96 MB.
    scheduled_max: int = 4_000_000
    # A transaction that is undecided for this long is asked for the first time (RocketMQ: 6 s).
    transaction_timeout_ms: int = 6_000
    # From one question to the next (RocketMQ: 30 s); if the producer that prepared it is connected
    # and silent, any other of its group is asked after as long.
    transaction_check_ms: int = 30_000
    # Questions that were put to somebody; after the last one the messages are kept aside (RocketMQ: 15).
    transaction_checks_max: int = 15
    # Undecided at a time; a few hundred bytes each where they come one by one, so 80 MB.
    transactions_max: int = 200_000
    # What one client may send in a second, all connections of its host together, and what it may
    # read; 0: as much as it will. `headrace quota set` says otherwise for single ones.
    client_produce_bytes: int = 0
    client_produce_messages: int = 0
    client_fetch_bytes: int = 0
    client_fetch_messages: int = 0
    # The same for one topic, all clients together.
    topic_produce_bytes: int = 0
    topic_produce_messages: int = 0
    topic_fetch_bytes: int = 0
    topic_fetch_messages: int = 0
    # A quota lets through at once what it lets through in this time: a batch of a second's work is
    # not cut into pieces.
    quota_burst_ms: int = 1_000
    # Share of its limit from which a group's backlog is an alarm: while there is time to act.
    backlog_alarm_percent: int = 80
    # A request waits this long for a quota, or for a group that is too far behind, then it is refused
    # and may be repeated. Half of the time after which clients give a request up.
    throttle_ms_max: int = 5_000
    # The archive behind the log, if there is one.
    archive: ArchiveSettings | None = None

    def __post_init__(self) -> None:
        require_types(self)
        super().__post_init__()
        require(0 <= self.port <= 65_535, "port must be 0 to 65535")
        require(1 <= self.default_queues <= 1_024, "default_queues must be 1 to 1024")
        require(
            self.frame_bytes_max >= self.frame_bytes_before_hello_max,
            "frame_bytes_max must not be below frame_bytes_before_hello_max",
        )
        require(self.member_expiry_ms >= 1_000, "member_expiry_ms must be at least 1000")
        require_vanished(self.vanished_ms_max)
        require_busy_poll(self.busy_poll_us)
        require(self.lock_expiry_ms >= 100, "lock_expiry_ms must be at least 100")
        for name in (
            "scan_bytes_max", "frame_ms_max", "transaction_timeout_ms",
            "transaction_check_ms", "transaction_checks_max", "quota_burst_ms", "throttle_ms_max",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in (
            "filter_processes_max", "scheduled_max", "transactions_max", "client_produce_bytes",
            "client_produce_messages", "client_fetch_bytes", "client_fetch_messages",
            "topic_produce_bytes", "topic_produce_messages", "topic_fetch_bytes",
            "topic_fetch_messages",
        ):  # fmt: skip
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        require(1 <= self.backlog_alarm_percent <= 100, "backlog_alarm_percent must be 1 to 100")


class ProducerSettings(ConnectionSettings, frozen=True, kw_only=True):
    """How a producer batches, waits and retries; its connection is in the base."""

    # Over all attempts; RocketMQ's 3 s is shorter than a broker restart.
    send_timeout_ms: int = 30_000
    # A batch leaves when it holds this many messages or bytes, or when the link is free.
    batch_messages_max: int = 1_000
    batch_bytes_max: int = MIB
    # Unacknowledged bytes a producer holds before `send` waits.
    buffer_bytes_max: int = 32 * MIB
    # About 100 ns per message for lz4: pays for large messages and slow networks.
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

    # A bundle leaves when it holds this many transactions or bytes, or when the link is free: a
    # quarter of a thousand that begin together is at the broker while the others are made.
    bundle_transactions_max: int = 250
    bundle_bytes_max: int = MIB
    # How long a request for checks stays at the broker.
    check_wait_ms: int = 15_000
    # Checks that are answered at a time: connections to the database that they may take.
    checkers_max: int = 8
    # A checker that takes longer is cancelled, and asked again later.
    checker_timeout_ms: int = 10_000
    # How soon queues that were added to a topic are used, as by every producer.
    route_refresh_ms: int = 5_000

    def __post_init__(self) -> None:
        require_types(self)
        for name in self.__struct_fields__:
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.bundle_transactions_max <= 4_096, "bundle_transactions_max is at most 4096")
        require(self.bundle_bytes_max <= 2 * MIB, "bundle_bytes_max is at most 2 MiB")


# More levels than anybody tells apart, and each needs a queue.
PRIORITIES_MAX = 10


class ConsumerSettings(ConnectionSettings, frozen=True, kw_only=True):
    """How a consumer fetches, keeps its place and reports its offsets; its connection is in the base."""

    # Many within the broker's expiry, so that one lost is no departure.
    heartbeat_ms: int = 1_000
    # How long the group keeps the queues of a consumer with a name for it when that is gone, stopped or
    # killed, at most the broker's `member_expiry_ms`: time for a restart, while they stand still. 0: the
    # others take them over at once, as those of a consumer without a name.
    away_ms: int = 30_000
    # How a topic's queues are divided; all members of a group must use the same (RocketMQ's
    # default). "sticky" moves the fewest queues when members come and go.
    allocation: Literal["average", "circle", "consistent_hash", "sticky"] = "average"
    # How soon queues that were added to a topic are found, give or take a heartbeat: within 3 s;
    # missing topics are looked for at every heartbeat.
    topics_refresh_ms: int = 2_000
    # How long a fetch that finds nothing stays at the broker, and how much one may bring.
    fetch_wait_ms: int = 15_000
    fetch_bytes_max: int = MIB
    # After an answer of few records nothing is asked for until a `poll` finds nothing here, or for so
    # long: one answer then brings what came meanwhile, where each record would cost a round trip. For
    # applications that do not poll all the time. 0: asks on at once.
    fetch_gather_ms: int = 0
    # Records handed over and not yet acknowledged, per queue (RocketMQ: 1,000); others wait here.
    in_flight_max: int = 1_000
    # Bytes of bodies held, handed over or not, per queue (RocketMQ: 100 MiB); one fetch may exceed it.
    in_flight_bytes_max: int = 100 * MIB
    # From the lowest unfinished offset to the highest one handed over, per queue (RocketMQ: 2,000):
    # what a crash may deliver again because of one slow record.
    in_flight_span_max: int = 2_000
    # What a crash delivers again, at most.
    commit_interval_ms: int = 1_000
    # Where a group without a committed offset begins: a number is a time, in milliseconds since 1970
    # UTC. Queues that appear later are always read from their first offset.
    start: Literal["earliest", "latest"] | int = "earliest"
    # Broadcast: the consumer gets all queues, whoever else is there, and keeps its offsets in this
    # file instead of the broker. One file for each consumer.
    broadcast_file: Path | None = None
    # What `Consumer.run` handles in order: the records of a key, those of a queue, or nothing.
    handling: Literal["per_key", "per_queue", "parallel"] = "per_key"
    # Keys (or queues, or records) that `Consumer.run` handles at a time; more only helps handlers
    # that wait for others.
    handlers_max: int = 64
    # Levels of priority of its topics: queues of higher levels are handed out first (JMS has 10). 1: all
    # queues are alike.
    priorities: int = 1
    # One of so many times the lowest level comes first, so that it is never left alone for long.
    priority_turns: int = 8
    # A handler that takes longer is cancelled and has failed (RocketMQ: 15 min).
    handler_timeout_ms: int = 900_000
    # First and longest pause before a failed record is handled again; doubled in between.
    retry_ms_min: int = 100
    retry_ms_max: int = 10_000
    # Share of the messages, 0 to 1, whose every step is told in the topic %TRACE%; which they are is
    # the same for all consumers. A step is a message: 1 costs more than the work of small handlers.
    trace_share: float = 0.0
    # Anything but a fetch is answered at once; this long means that the broker is gone.
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
    # A letter that is deleted by age is a message lost; choose that where nobody reads them.
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


class SuperviseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a supervisor asks, ends and restarts its broker, and what it keeps of an end."""

    # A question costs the broker a connection and less than a millisecond.
    ask_every_ms: int = 5_000
    # No answer for this long: stuck. As long as a silent consumer may stay in its group; a disk
    # that stalls for seconds is no reason to restart.
    stuck_after_ms: int = 30_000
    # A recovery may read a terabyte of log anew; ending it would only make it begin again.
    start_ms_max: int = HOUR_MS
    # From SIGTERM on: what is appended becomes durable, clients take their last answers.
    stop_ms_max: int = 60_000
    # From SIGABRT to SIGKILL: all stacks are written, memory is given back.
    abort_ms_max: int = 5_000
    # First and longest pause before a restart; doubled in between, then spread by chance over its
    # upper half. Clients go on retrying meanwhile, so that a short one is worth most.
    pause_ms_min: int = 500
    pause_ms_max: int = 60_000
    # A broker that served this long ran well: the pauses begin anew.
    well_after_ms: int = 600_000
    # Enough to see a pattern; a broker that ends all night must not fill the disk.
    reports_max: int = 20
    # The end of standard error kept for a report: the stacks of some fifty threads.
    stderr_bytes_max: int = 128 * KIB

    def __post_init__(self) -> None:
        require_types(self)
        for name in (
            "stuck_after_ms", "ask_every_ms", "start_ms_max", "stop_ms_max", "abort_ms_max",
            "well_after_ms", "reports_max", "stderr_bytes_max",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(
            self.ask_every_ms <= self.stuck_after_ms,
            "ask_every_ms must not be above stuck_after_ms",
        )
        require_pauses("pause_ms", self.pause_ms_min, self.pause_ms_max)
