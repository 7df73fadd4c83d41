"""
Every setting of the queue with its default, its unit and its reason, validated once.

The settings of clients are defined in `client_settings`; import them from here too. Values only:
nothing here reads the environment or a file; the command line does.
"""

from pathlib import Path
from typing import Literal

import msgspec

from headrace_mq._runtime.checks import (
    require,
    require_busy_poll,
    require_pauses,
    require_types,
    require_vanished,
)
from headrace_mq.client_settings import (
    ConsumerSettings,
    ProducerSettings,
    RetrySettings,
    TransactionSettings,
)

__all__ = [
    "ArchiveSettings",
    "BrokerSettings",
    "BudgetSettings",
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
    # A clock that is set by more is an alarm for a day: a person, or a battery, was wrong. Smaller steps
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
    # A message stays this long even if another supersedes it: a consumer that keeps up sees every change.
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
    # Of each log, kept on the disk besides what is not archived yet: readers that are hours behind
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
    # Messages that are read back at a time (EQueue: 10,000), and their bytes besides the last one.
    block_messages_max: int = 10_000
    block_bytes_max: int = 8 * MIB
    # Memory for blocks that were read back, over all queues.
    cache_bytes: int = 64 * MIB
    # An alarm says when the oldest message has waited for this long, or this much waits.
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


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what all clients together, and those of one address, may take up of a broker.

    The part of `BrokerSettings` about budgets. What one address may take is less than all of it.
    """

    # One file descriptor each; far below the usual 65,536 of a service. Fewer, with a warning, where
    # the system grants the broker fewer open files.
    connections_max: int = 4_096
    # Connections of one address (this machine's too), so that one cannot take them all; a quarter.
    connections_per_address_max: int = 1_024
    # Connections that have not said HELLO yet; above it the one that is silent for longest goes. Clients
    # say it at once.
    connections_before_hello_max: int = 256
    # Bytes of requests that have not arrived as a whole, or wait for their turn, over all connections;
    # above it the connection that has waited longest with one is closed. Sixty of the largest frames.
    requests_bytes_max: int = 256 * MIB
    # Bytes of answers that clients do not read, over all connections; above it the connection with
    # most of them is closed. Sixteen clients that take nothing at all.
    answers_bytes_max: int = 256 * MIB
    # Memory for members of groups, their topics and what they hold, over all connections; above it
    # no member joins. Some 100,000 members with a topic.
    memberships_bytes_max: int = 64 * MIB
    # Of that, what the members of one connection take: a thousand with a few topics each.
    memberships_bytes_per_connection_max: int = 4 * MIB
    # Queues that parked fetches wait at, over all connections; above it a fetch is answered at once.
    # Some 300 bytes each.
    parked_queues_max: int = 262_144
    # New queues, and offsets of groups in further queues, that the clients of one address may make in a
    # minute; 0: as many as they will. A broker has 65,536 and 200,000: one client that goes wild needs a
    # quarter of an hour to use them up, and an operator can look.
    address_queues_per_minute: int = 4_200
    address_offsets_per_minute: int = 18_000
    # File descriptors kept for segments, indexes and other files, which no connection gets.
    descriptors_reserved: int = 256

    def __post_init__(self) -> None:
        for name in BudgetSettings.__struct_fields__:
            least = 0 if name.startswith("address_") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")


class BrokerSettings(BudgetSettings, frozen=True, kw_only=True):
    """How a broker listens, and where every one of its limits stands; budgets are in the base."""

    # Where the files are, and how they are kept.
    store: StoreSettings
    # Reachable from this machine alone until you change it.
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
    # Processes that look through backlogs of which little is wanted, so that other clients do not wait. Two
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
    # Questions that reached a producer; after the last one the messages are kept aside (RocketMQ: 15).
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


class SuperviseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a supervisor asks, ends and restarts its broker, and what it keeps of an end."""

    # A question costs the broker a connection and less than a millisecond.
    ask_every_ms: int = 5_000
    # No answer for this long: stuck. As long as a silent consumer may stay in its group; a disk
    # that stalls for seconds is no reason to restart.
    stuck_after_ms: int = 30_000
    # A recovery may read a terabyte of log again; ending it would only make it begin again.
    start_ms_max: int = HOUR_MS
    # From SIGTERM on: what is appended becomes durable, clients take their last answers.
    stop_ms_max: int = 60_000
    # From SIGABRT to SIGKILL: all stacks are written, memory is given back.
    abort_ms_max: int = 5_000
    # First and longest pause before a restart; doubled in between, then spread by chance over its
    # upper half. Clients go on retrying meanwhile, so that a short one is worth most.
    pause_ms_min: int = 500
    pause_ms_max: int = 60_000
    # A broker that served this long ran well: the pauses start from the first again.
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
