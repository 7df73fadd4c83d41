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
    require_near,
    require_pauses,
    require_secure,
    require_tls,
    require_types,
    require_vanished,
)
from headrace_mq.client_settings import (
    ConsumerSettings,
    ProducerSettings,
    RetrySettings,
    TransactionSettings,
)
from headrace_mq.name_settings import NamesSettings

__all__ = [
    "ArchiveSettings",
    "BrokerSettings",
    "BudgetSettings",
    "ConsumerSettings",
    "GroupSettings",
    "NamesSettings",
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

RECORD_SCHEMES = ("postgresql://", "postgresql+asyncpg://", "etcd://", "etcds://")
RECORD_SENTENCE = "the record of a group is in PostgreSQL or etcd: postgresql://USER@HOST/DATABASE, or etcd://HOST:2379,HOST:2379"


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the broker keeps messages on disk."""

    # One broker per directory.
    directory: Path
    # A segment is the unit of deletion; 1 GiB is RocketMQ's size.
    segment_bytes: int = GIB
    # "always": an ack means fdatasync returned. "interval": acks from the page cache.
    flush: Literal["always", "interval"] = "always"
    # RocketMQ's timer: a power cut may lose the messages of this time in "interval" mode.
    flush_interval_ms: int = 500
    # A segment may be deleted when its last message is older (RocketMQ: 72 h); topics kept forever have
    # no limit.
    transient_age_ms: int = 72 * HOUR_MS
    # If the transient log is larger, its oldest segments are deleted before their age; 0: no limit.
    transient_bytes_max: int = 0
    # A message that a group has not consumed is kept up to this age: a command must not be lost over a
    # long weekend, and a forgotten group must not keep the log forever. 0: no longer than other messages
    # (as in EQueue and RocketMQ).
    unconsumed_ms_max: int = 168 * HOUR_MS
    # How often the ages of messages are stored: after a power cut messages are younger by up to this, and
    # stay that much longer. A restart of the broker alone loses nothing.
    timeline_keep_ms: int = 60_000
    # If the clock is set by more, there is an alarm for a day: a person, or a battery, was wrong. Smaller
    # steps come from a time server; they are in the log.
    clock_jump_ms_min: int = 60_000
    # How often the rules are applied (EQueue: 10 s).
    retention_interval_ms: int = 10_000
    # Segments deleted at a time (RocketMQ: 10): you can notice a mistake while most messages are there.
    segments_deleted_max: int = 10
    # Segment size of compacted topics: smaller, because the newest segment is not compacted.
    compact_segment_bytes: int = 64 * MIB
    # Compaction starts when this share of the log's segments is not compacted yet (Kafka: 50 %).
    compact_dirty_percent: int = 50
    # How often the broker checks whether to compact (Kafka: 15 s).
    compact_interval_ms: int = 15_000
    # A message stays this long even if a newer one replaces it: a consumer that keeps up sees every change.
    compact_lag_ms: int = 60_000
    # How long a message without a body is kept after its key's messages are gone: slow readers must see
    # the deletion, too (Kafka: 24 h).
    tombstone_ms: int = 24 * HOUR_MS
    # Memory for the keys of one compaction: about 500,000 of them (Kafka: 128 MiB).
    compact_memory_bytes: int = 128 * MIB
    # How much a compaction reads per second: it must leave disk and processor to messages; 0: no limit.
    compact_bytes_per_s: int = 16 * MIB
    # Share of the disk above which new messages are refused (RocketMQ: 90 %); 100: never.
    disk_refuse_percent: int = 90
    # Share of the disk above which consumed transient messages are deleted before their age (RocketMQ:
    # 75 % starts deletion at any hour); 100: never.
    disk_delete_percent: int = 75
    # How often the broker checks the disk: once there is room, sending goes on within this time.
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
    # Archived bytes of each log that stay on the disk: readers that are hours behind need no database.
    window_bytes: int = 4 * GIB
    # Bytes of the log per transaction: some 30,000 small messages, a tenth of a second.
    transaction_bytes: int = 4 * MIB
    # Pause after everything is archived: few transactions while few messages come.
    interval_ms: int = 100
    # First and longest pause after a failure; doubled in between.
    retry_ms_min: int = 100
    retry_ms_max: int = 10_000
    # Longest wait for a connection, and for one statement or the copy of one transaction.
    connect_timeout_ms: int = 10_000
    statement_timeout_ms: int = 60_000
    # Messages read back at a time (EQueue: 10,000), and their bytes; the last one may exceed these.
    block_messages_max: int = 10_000
    block_bytes_max: int = 8 * MIB
    # Memory for blocks that were read back, over all queues.
    cache_bytes: int = 64 * MIB
    # There is an alarm when the oldest message has waited for this long, or when this much waits.
    alarm_age_ms: int = 60_000
    alarm_bytes: int = GIB
    # New messages are refused while more than this waits: enough for hours without the database, and
    # less than the whole disk.
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


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker belongs to a group of brokers, one of which leads and the others are its replicas."""

    # postgresql://USER@HOST/DATABASE or etcd://HOST:PORT,HOST:PORT: keeps the group's record, one row or key, which a broker
    # makes. Its server must not lose commits.
    record: str
    # The name of the cluster; several may share a database.
    cluster: str = "default"
    # The name of the group in its cluster.
    name: str = "g1"
    # HOST:PORT at which clients and the other brokers reach this one; None: where it listens. It is the broker's name in the
    # group, so it stays the same.
    advertise: str | None = None
    # Fewer brokers in sync, the leader among them, acknowledge nothing. 2 of three: no message is on one machine alone.
    min_in_sync: int = 1
    # A replica that has not heard of its leader for this long serves no reads, so that clients go on at the leader: less than
    # the 3 s for which a leader waits for a silent replica, so each change of topics was here before. Five answers.
    replica_stale_ms_max: int = 2_500
    # A PEM file with the authorities of the other brokers' certificates; None: those of the system.
    ca: Path | None = None
    # With a login: the user as which this broker follows others; one that may administer the cluster.
    user: str | None = None
    # The file with that user's password, or its key.
    password_file: Path | None = None

    def __post_init__(self) -> None:
        require_types(self)
        require(
            (self.user is None) == (self.password_file is None),
            "group.user and group.password_file belong together",
        )
        require(
            self.record.startswith(RECORD_SCHEMES),
            RECORD_SENTENCE,
        )
        require(bool(self.cluster and self.name), "cluster and name must not be empty")
        require(self.min_in_sync >= 1, "min_in_sync must be at least 1")
        require(self.replica_stale_ms_max >= 0, "replica_stale_ms_max must be at least 0")


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what all clients together, and the clients of one address, may take of a broker.

    The part of `BrokerSettings` about budgets. One address may take less than all of it.
    """

    # One file descriptor each; far below the usual 65,536 of a service. If the system allows the broker
    # fewer open files, it takes fewer connections and logs a warning.
    connections_max: int = 4_096
    # Connections of one address (this machine's, too): a quarter, so that one cannot take them all.
    connections_per_address_max: int = 1_024
    # Connections that have not sent HELLO yet. Above it the broker closes the one that has been silent
    # longest. Clients send HELLO at once.
    connections_before_hello_max: int = 256
    # With login: the part of them from one address. Half, so that one cannot keep out the others.
    connections_before_hello_per_address_max: int = 128
    # Bytes of requests that are incomplete, or wait for their turn, over all connections. Above it the
    # broker closes the connection with the oldest one. Sixty of the largest frames.
    requests_bytes_max: int = 256 * MIB
    # Bytes of answers that clients do not read, over all connections. Above it the broker closes the
    # connection with most of them. Enough for sixteen clients that read nothing at all.
    answers_bytes_max: int = 256 * MIB
    # Memory for members of groups, their topics and queues, over all connections. Above it no member can
    # join. Some 100,000 members with one topic.
    memberships_bytes_max: int = 64 * MIB
    # The part of that memory for members of one connection: a thousand with a few topics each.
    memberships_bytes_per_connection_max: int = 4 * MIB
    # Queues at which fetches wait, over all connections. Above it a fetch is answered at once. Some 300
    # bytes each.
    parked_queues_max: int = 262_144
    # New queues, and new offsets of groups, that the clients of one address may make per minute; 0: no
    # limit. A broker has room for 65,536 and 200,000: a client that runs wild needs a quarter of an hour
    # to use them up, time for you to react.
    address_queues_per_minute: int = 4_200
    address_offsets_per_minute: int = 18_000
    # File descriptors for segments, indexes and other files; connections do not get these.
    descriptors_reserved: int = 256

    def __post_init__(self) -> None:
        for name in BudgetSettings.__struct_fields__:
            least = 0 if name.startswith("address_") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")


class BrokerSettings(BudgetSettings, frozen=True, kw_only=True):
    """How a broker listens, and its limits; budgets are in the base class."""

    # Where the files are, and how they are kept.
    store: StoreSettings
    # By default only programs on this machine can connect. Another address needs TLS, and `login` or
    # `tls_client_ca`, or it needs `insecure`.
    host: str = "127.0.0.1"
    # 0: the broker takes a free port and prints it in the ready line.
    port: int = 9876
    # PEM files with the broker's certificate (and those that lead to its authority), and with its key, which
    # no other user may read. With them the broker speaks TLS 1.3 alone. New files are used for new
    # connections within 10 s, or at once after SIGHUP.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # A PEM file with authorities. If you set it, each client must show a certificate that one of them signed.
    tls_client_ca: Path | None = None
    # Serve only users that have logged in, or show a certificate that is a user, and only what rules allow
    # them. Off: each client that reaches the broker may do everything.
    login: bool = False
    # Keep an audit. With `login` or `tls_client_ca` there is always one, because the broker then knows who asks; without
    # them its entries have an address and no name.
    audit: bool = False
    # Entries of the audit that are kept, of each of its four kinds (changes of users that may administer, changes of others,
    # logins, refusals): months of what people do. An entry has some 350 bytes, and less than 2 KiB: all take some 140 MB, and
    # at most 782 MiB, or twice that until the next compaction. A broker of a group keeps entries as long as transient messages.
    audit_entries_max: int = 100_000
    # Entries about logins per second, and about refusals: a flood of wrong passwords must not fill the disk or the log. What
    # is left out is counted, and the count is an entry. Changes are never left out, so many of them push out older ones.
    audit_per_second_max: int = 20
    # Entries about refusals of one client in a minute, who is a user or else an address: one that asks for other things all
    # the time pushes out the refusals of others after three days at the soonest. The rest is counted, and the count is an
    # entry of the client.
    audit_refusals_per_minute_max: int = 10
    # How long a connection may take until it has logged in: clients do it at once, in some milliseconds.
    login_ms_max: int = 10_000
    # Listen to other machines without TLS or without a login: who gets there, or stands on the way, may do
    # everything.
    insecure: bool = False
    # The first message to a topic creates it; switch this off if a typo must not create a topic.
    auto_create_topics: bool = True
    # EQueue's and RocketMQ's default for a new topic.
    default_queues: int = 4
    # A frame before the handshake needs to hold only a client's name.
    frame_bytes_before_hello_max: int = 64 * KIB
    # 4 MiB of payload, RocketMQ's message limit, and 64 KiB for the rest of the frame.
    frame_bytes_max: int = 4 * MIB + 64 * KIB
    # How long one frame may take to arrive: the largest one at 1.2 Mbit/s. A client that sends byte by
    # byte is disconnected after twice that at the latest.
    frame_ms_max: int = 30_000
    # If a client vanishes (power, cable), the broker notices it after half of this without a byte from
    # it, or after all of this if answers for it wait.
    vanished_ms_max: int = 60_000
    # How long, in microseconds, the event loop polls for the next bytes instead of sleeping. It does so
    # only while bytes come within this time: waking up takes longer than the work on a small message. It
    # keeps a processor busy, so leave it at 0 (never) unless you have one to spare.
    busy_poll_us: int = 0
    # Answer bytes that a connection has not read yet; above it the broker reads no more from it.
    outgoing_bytes_max: int = 16 * MIB
    # Longest wait of a fetch that finds no message (RocketMQ: 15 s).
    fetch_wait_ms_max: int = 15_000
    # Bytes scanned per filtered fetch: about 35,000 messages of 100 bytes, so that it takes few fetches to
    # find one of millions.
    scan_bytes_max: int = 4 * MIB
    # Worker processes that filter backlogs, so that other clients do not wait. Two use both processors of a
    # small machine; 35 MiB each while there is such a backlog. 0: none.
    filter_processes_max: int = 2
    # Parked fetches over all connections; each costs about 1 KiB.
    parked_fetches_max: int = 16_384
    # A member that has sent nothing for this long has left (RocketMQ scans at 120 s).
    member_expiry_ms: int = 30_000
    # After this time without a heartbeat (ten are missing) a member's locks on queues may go to others.
    # Well below `member_expiry_ms`, so that other members do not wait long for one that hangs (RocketMQ
    # renews every 20 s and waits 60 s).
    lock_expiry_ms: int = 10_000
    # How often committed offsets reach the disk; a crash means redelivery, never loss.
    offsets_flush_ms: int = 1_000
    # Scheduled messages that may wait at a time; each takes 24 bytes of memory, so 4 million take 96 MB.
    scheduled_max: int = 4_000_000
    # The broker asks the producer about a transaction that is undecided for this long (RocketMQ: 6 s).
    transaction_timeout_ms: int = 6_000
    # Time between two such questions (RocketMQ: 30 s). If the producer is connected and does not answer,
    # another one of its group is asked after the same time.
    transaction_check_ms: int = 30_000
    # Questions that reach a producer; after the last one the messages are kept aside (RocketMQ: 15).
    transaction_checks_max: int = 15
    # Undecided transactions at a time; a few hundred bytes each if they come one by one, so 80 MB.
    transactions_max: int = 200_000
    # How much one client, all connections of its host together, may send and read per second; 0: no
    # limit. `headrace quota set` sets another quota for one client.
    client_produce_bytes: int = 0
    client_produce_messages: int = 0
    client_fetch_bytes: int = 0
    client_fetch_messages: int = 0
    # The same for one topic and all clients together.
    topic_produce_bytes: int = 0
    topic_produce_messages: int = 0
    topic_fetch_bytes: int = 0
    topic_fetch_messages: int = 0
    # A client may use the quota of this time at once: so a batch of a second's work is not split.
    quota_burst_ms: int = 1_000
    # HOST:PORT where `GET /metrics` answers with figures for Prometheus; None: nowhere. Without `insecure` only programs on
    # this machine reach it.
    metrics: str | None = None
    # Topics with metrics of their own: four series each, so 4,000 of the some 20,000 that one target should have. The
    # others are added up as `other`.
    metrics_topics_max: int = 1_000
    # Groups with metrics of their own: five series each, besides those of their queues. The others are added up.
    metrics_groups_max: int = 1_000
    # Queues with a backlog of their own, over all groups: two series each, and some 20 microseconds of the broker's time
    # whenever Prometheus asks. A group whose queues do not fit has them added up.
    metrics_queues_max: int = 5_000
    # At this share of a group's backlog limit there is an alarm: while there is time to act.
    backlog_alarm_percent: int = 80
    # A request waits at most this long for a quota, or for a group that is too far behind; then it is
    # refused, and may be repeated. Half of the time that clients wait for an answer.
    throttle_ms_max: int = 5_000
    # The archive behind the log, if there is one.
    archive: ArchiveSettings | None = None
    # The group of brokers that this one belongs to, if it does.
    group: GroupSettings | None = None
    # What it tells name servers, if there are any.
    names: NamesSettings | None = None

    def __post_init__(self) -> None:
        require_types(self)
        self._check_group()
        self._check_names()
        super().__post_init__()
        require(0 <= self.port <= 65_535, "port must be 0 to 65535")
        require_tls(self.tls_certificate, self.tls_key, self.tls_client_ca)
        require_secure(
            self.host,
            secured=self.tls_certificate is not None,
            known=self.login or self.tls_client_ca is not None,
            insecure=self.insecure,
        )
        if self.metrics is not None:
            require_near(self.metrics, insecure=self.insecure)
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
            "scan_bytes_max", "frame_ms_max", "login_ms_max", "transaction_timeout_ms",
            "transaction_check_ms", "transaction_checks_max", "quota_burst_ms", "throttle_ms_max",
            "audit_entries_max", "audit_per_second_max", "audit_refusals_per_minute_max",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in (
            "filter_processes_max", "scheduled_max", "transactions_max", "client_produce_bytes",
            "client_produce_messages", "client_fetch_bytes", "client_fetch_messages",
            "topic_produce_bytes", "topic_produce_messages", "topic_fetch_bytes",
            "topic_fetch_messages", "metrics_topics_max", "metrics_groups_max", "metrics_queues_max",
        ):  # fmt: skip
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        require(1 <= self.backlog_alarm_percent <= 100, "backlog_alarm_percent must be 1 to 100")

    @property
    def keeps_audit(self) -> bool:
        """Whether the broker keeps an audit."""
        return self.audit or self.login or self.tls_client_ca is not None

    def _check_group(self) -> None:
        if self.group is None:
            return
        require(
            not self.login or self.group.user is not None or self.tls_certificate is not None,
            "with a login, a broker of a group follows as a user: name it with group.user and group.password_file, or let"
            " its certificate be one",
        )
        require(
            self.store.flush == "always",
            "brokers of a group acknowledge what is on the disk: use flush=always",
        )
        require(
            self.group.advertise is not None
            or (self.port != 0 and self.host not in {"0.0.0.0", "::"}),  # noqa: S104 - it is refused
            "a broker of a group has one address at which the others reach it: say it with --advertise HOST:PORT, or"
            " use a fixed host and port",
        )

    def _check_names(self) -> None:
        require(
            self.names is None
            or self.group is not None
            or self.names.advertise is not None
            or self.host not in {"0.0.0.0", "::"},  # noqa: S104 - it is refused
            "name servers tell clients at which address they reach a broker: say it with --advertise HOST:PORT",
        )


class SuperviseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a supervisor asks, ends and restarts its broker, and what it keeps after an end."""

    # How often the supervisor asks; this costs the broker a connection and less than a millisecond.
    ask_every_ms: int = 5_000
    # Without an answer for this long the broker is stuck. As long as a silent consumer stays in its
    # group; a disk that stalls for seconds is no reason to restart.
    stuck_after_ms: int = 30_000
    # A recovery may read a terabyte of log; if the supervisor ended it, it would only begin again.
    start_ms_max: int = HOUR_MS
    # Time after SIGTERM: to make appended messages durable, and to send the last answers.
    stop_ms_max: int = 60_000
    # Time from SIGABRT to SIGKILL: to write all stacks and to free memory.
    abort_ms_max: int = 5_000
    # First and longest pause before a restart; doubled in between, then moved at random within its upper
    # half. Clients retry meanwhile, so the first pause is short.
    pause_ms_min: int = 500
    pause_ms_max: int = 60_000
    # After a broker has served this long, the pauses start with the first one again.
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
