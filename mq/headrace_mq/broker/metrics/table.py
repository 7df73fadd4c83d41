"""
The metrics of a broker: the one table that the text for Prometheus and `docs/metrics.md` are made of. PURE.

Used by the parts of `broker.metrics`, which know the values, and by tests of the alert rules and the dashboard.
"""

from typing import Final

from headrace_mq.metrics.table import PROCESS_METRICS, Metric

__all__ = ["BROKER_METRICS"]

MESSAGES_IN: Final = Metric(
    "headrace_broker_messages_in_total",
    "counter",
    "messages",
    "Messages that were stored.",
    ("topic",),
)
BYTES_IN: Final = Metric(
    "headrace_broker_bytes_in_total",
    "counter",
    "bytes",
    "Bytes of batches that were stored, as they are in the log.",
    ("topic",),
)
MESSAGES_OUT: Final = Metric(
    "headrace_broker_messages_out_total",
    "counter",
    "messages",
    "Messages that readers were given; each group counts.",
    ("topic",),
)
BYTES_OUT: Final = Metric(
    "headrace_broker_bytes_out_total",
    "counter",
    "bytes",
    "Bytes of batches that readers were given.",
    ("topic",),
)
APPEND: Final = Metric(
    "headrace_broker_append_seconds",
    "histogram",
    "seconds",
    "From the append of a PRODUCE request to its acknowledgement; all requests of a flush count as its first one.",
)
FLUSH: Final = Metric(
    "headrace_broker_flush_seconds",
    "histogram",
    "seconds",
    "Duration of a flush to the disk. With `--flush interval` there are none of these.",
)
FETCH: Final = Metric(
    "headrace_broker_fetch_seconds",
    "histogram",
    "seconds",
    "Work for a FETCH answer with messages, without the wait for new ones.",
)
TOPICS: Final = Metric("headrace_broker_topics", "gauge", "topics", "Topics that exist.")
QUEUES: Final = Metric("headrace_broker_queues", "gauge", "queues", "Queues of all topics.")
GROUPS: Final = Metric(
    "headrace_broker_groups", "gauge", "groups", "Groups of consumers that the broker knows."
)
SUMMED: Final = Metric(
    "headrace_broker_metrics_summed",
    "gauge",
    "1",
    "How many topics, groups, or queues of groups share the series `other`, because there are more than"
    " metrics_topics_max, metrics_groups_max or metrics_queues_max. 0: each has its own.",
    ("kind",),
)
BACKLOG: Final = Metric(
    "headrace_broker_group_backlog_messages",
    "gauge",
    "messages",
    "Messages that a group has not consumed yet.",
    ("group", "topic", "queue"),
)
BACKLOG_AGE: Final = Metric(
    "headrace_broker_group_backlog_seconds",
    "gauge",
    "seconds",
    "Age of the oldest message of a queue that a group has not consumed; 0 without a backlog.",
    ("group", "topic", "queue"),
)
OLDEST: Final = Metric(
    "headrace_broker_group_oldest_seconds",
    "gauge",
    "seconds",
    "Age of the oldest message in any queue that a group has not acknowledged; 0 without a backlog.",
    ("group",),
)
MEMBERS: Final = Metric(
    "headrace_broker_group_members", "gauge", "members", "Members of a group.", ("group",)
)
PAUSED: Final = Metric(
    "headrace_broker_group_paused", "gauge", "1", "1: an operator paused the group.", ("group",)
)
KEEPS_OFFSETS: Final = Metric(
    "headrace_broker_group_keeps_offsets",
    "gauge",
    "1",
    "1: the group commits its offsets here. 0: it is new, or keeps them itself, as projections do; then it has no"
    " backlog here, and `headrace run` serves it.",
    ("group",),
)
BACKLOG_ALARM: Final = Metric(
    "headrace_broker_group_backlog_alarm",
    "gauge",
    "1",
    "1: the backlog is near the limit that an operator set for the group.",
    ("group",),
)
DISK_FREE: Final = Metric(
    "headrace_broker_disk_free_bytes",
    "gauge",
    "bytes",
    "Free space on the disk of the data folder, for the broker's user.",
)
DISK_SIZE: Final = Metric(
    "headrace_broker_disk_size_bytes",
    "gauge",
    "bytes",
    "What the broker's user may use of that disk in all.",
)
DISK_ROOM: Final = Metric(
    "headrace_broker_disk_room_bytes",
    "gauge",
    "bytes",
    "Space until the broker refuses new messages (`--disk-refuse`).",
)
DISK_DAYS: Final = Metric(
    "headrace_broker_disk_days_left",
    "gauge",
    "days",
    "Days until then, at the pace of the last day. +Inf: the space does not shrink. Missing for the first ten minutes.",
)
LOG_BYTES: Final = Metric(
    "headrace_broker_log_bytes", "gauge", "bytes", "Size of a log on the disk.", ("log",)
)
LOG_SEGMENTS: Final = Metric(
    "headrace_broker_log_segments", "gauge", "segments", "Segments of a log.", ("log",)
)
TAKES_MESSAGES: Final = Metric(
    "headrace_broker_takes_messages",
    "gauge",
    "1",
    "1: new messages are accepted. 0: they are refused; `headrace broker show` says why.",
)
READ_ONLY: Final = Metric(
    "headrace_broker_read_only",
    "gauge",
    "1",
    "1: the disk failed, and the store takes nothing until a restart.",
)
DAMAGED: Final = Metric(
    "headrace_broker_damaged_places_total",
    "counter",
    "places",
    "Places of the logs that were found damaged.",
)
CONNECTIONS: Final = Metric(
    "headrace_broker_connections", "gauge", "connections", "Open connections."
)
CLIENTS: Final = Metric(
    "headrace_broker_clients",
    "gauge",
    "connections",
    "Connections that have sent, are members of groups, or read without one; one connection may be several.",
    ("role",),
)
CONNECTIONS_REFUSED: Final = Metric(
    "headrace_broker_connections_refused_total",
    "counter",
    "connections",
    "Connections that were refused because a limit was reached.",
)
LOGINS_REFUSED: Final = Metric(
    "headrace_broker_logins_refused_total",
    "counter",
    "logins",
    "Logins that failed, or that were refused after too many failures.",
)
FORBIDDEN: Final = Metric(
    "headrace_broker_requests_forbidden_total",
    "counter",
    "requests",
    "Requests that no rule allows.",
)
PARKED: Final = Metric(
    "headrace_broker_fetches_waiting", "gauge", "fetches", "Fetches that wait for new messages."
)
THROTTLED: Final = Metric(
    "headrace_broker_requests_throttled_total",
    "counter",
    "requests",
    "Requests that had to wait for a quota, or for a group with a full backlog.",
)
HELD: Final = Metric(
    "headrace_broker_requests_held", "gauge", "requests", "Requests that wait for that now."
)
TRANSACTIONS: Final = Metric(
    "headrace_broker_transactions_open", "gauge", "transactions", "Undecided transactions."
)
TRANSACTIONS_AGE: Final = Metric(
    "headrace_broker_transactions_oldest_seconds",
    "gauge",
    "seconds",
    "Age of the oldest undecided transaction; 0 without one.",
)
SCHEDULED: Final = Metric(
    "headrace_broker_scheduled_messages", "gauge", "messages", "Messages that wait for their time."
)
SCHEDULED_LATE: Final = Metric(
    "headrace_broker_scheduled_late_seconds",
    "gauge",
    "seconds",
    "How late the next scheduled message is; 0 if it is not due yet.",
)
DEAD_LETTERS: Final = Metric(
    "headrace_broker_dead_letters_total",
    "counter",
    "messages",
    "Messages that were ever put into a topic of dead letters.",
    ("topic",),
)
CLOCK_ALARM: Final = Metric(
    "headrace_broker_clock_alarm",
    "gauge",
    "1",
    "1: the machine's clock was set by clock_jump_ms_min or more during the last day.",
)
CLOCK_AHEAD: Final = Metric(
    "headrace_broker_clock_ahead_seconds",
    "gauge",
    "seconds",
    "How far the machine's clock is ahead of the broker's steady one, because it was set.",
)
CERTIFICATE: Final = Metric(
    "headrace_broker_certificate_expires_seconds",
    "gauge",
    "seconds since 1970",
    "When the broker's certificate expires; only with TLS.",
)
ARCHIVED: Final = Metric(
    "headrace_broker_archived_messages_total",
    "counter",
    "messages",
    "Messages that were copied to the archive; only with one.",
)
ARCHIVE_WAITING: Final = Metric(
    "headrace_broker_archive_waiting_bytes",
    "gauge",
    "bytes",
    "Bytes that wait for the archive; only with one.",
)
ARCHIVE_AGE: Final = Metric(
    "headrace_broker_archive_waiting_seconds",
    "gauge",
    "seconds",
    "How long the oldest of them has waited at least; only with an archive.",
)
ARCHIVE_FAILED: Final = Metric(
    "headrace_broker_archive_failed",
    "gauge",
    "1",
    "1: the last attempt to write to the archive failed; only with one.",
)
DIRTY: Final = Metric(
    "headrace_broker_compaction_dirty_bytes",
    "gauge",
    "bytes",
    "Bytes of the compacted log that no compaction has seen yet.",
)
COMPACTION_FAILED: Final = Metric(
    "headrace_broker_compaction_failed",
    "gauge",
    "1",
    "1: the last compaction ended early; `headrace broker show` says why.",
)
LEADS: Final = Metric(
    "headrace_broker_leads",
    "gauge",
    "1",
    "1: this broker serves the clients of its group; only in a group.",
    ("cluster", "group"),
)
LEADER_INFO: Final = Metric(
    "headrace_broker_leader_info",
    "gauge",
    "1",
    "Who leads, as this broker knows it, and as which it belongs to the group; the value is always 1.",
    ("cluster", "group", "broker", "leader"),
)
EPOCH: Final = Metric(
    "headrace_broker_group_epoch",
    "gauge",
    "elections",
    "The epoch: how often a leader was elected; only in a group.",
    ("cluster", "group"),
)
IN_SYNC: Final = Metric(
    "headrace_broker_in_sync",
    "gauge",
    "brokers",
    "Brokers in sync, the leader included; only in a group.",
    ("cluster", "group"),
)
MIN_IN_SYNC: Final = Metric(
    "headrace_broker_min_in_sync",
    "gauge",
    "brokers",
    "Fewer brokers in sync acknowledge nothing; 1 while the leader acknowledges alone; only in a group.",
    ("cluster", "group"),
)
WENT_BACK: Final = Metric(
    "headrace_broker_record_went_back",
    "gauge",
    "1",
    "1: the group's record is older than one that was seen, or of another group; no leader can be elected.",
    ("cluster", "group"),
)
UNCLEAN: Final = Metric(
    "headrace_broker_unclean_epoch",
    "gauge",
    "elections",
    "The epoch in which a broker was promoted with loss of messages; 0: none, or `headrace cluster settle` ended it.",
    ("cluster", "group"),
)
RECORD_SILENT: Final = Metric(
    "headrace_broker_record_silent_seconds",
    "gauge",
    "seconds",
    "How long ago the group's record answered this broker. While it does not answer, the group goes on, and elects no leader.",
    ("cluster", "group"),
)
REPAIRED: Final = Metric(
    "headrace_broker_repaired_places_total",
    "counter",
    "places",
    "Damaged places of this broker's logs that got sound bytes from another broker; only in a group.",
    ("cluster", "group"),
)
UNREPAIRED: Final = Metric(
    "headrace_broker_unrepaired_places",
    "gauge",
    "places",
    "Damaged places of this broker's logs for which no other broker had sound bytes; only in a group.",
    ("cluster", "group"),
)
LOST: Final = Metric(
    "headrace_broker_lost_messages",
    "gauge",
    "messages",
    "Messages that this broker cut because another one led without them, though they may have been acknowledged; files of its"
    " folder have them, and `headrace store lost` shows them.",
    ("cluster", "group"),
)
REPLICA_IN_SYNC: Final = Metric(
    "headrace_broker_replica_in_sync",
    "gauge",
    "1",
    "1: the replica is in sync; only on the leader.",
    ("cluster", "group", "replica"),
)
REPLICA_BYTES: Final = Metric(
    "headrace_broker_replica_lag_bytes",
    "gauge",
    "bytes",
    "Bytes of the logs that the replica does not have on its disk; only on the leader.",
    ("cluster", "group", "replica"),
)
REPLICA_LAG: Final = Metric(
    "headrace_broker_replica_lag_seconds",
    "gauge",
    "seconds",
    "How long ago the replica had everything; up to half a second is normal; only on the leader.",
    ("cluster", "group", "replica"),
)
REPLICA_LOSS_BYTES: Final = Metric(
    "headrace_broker_replica_loss_bytes",
    "gauge",
    "bytes",
    "Bytes of messages that were acknowledged and that the replica does not have on its disk: what is lost if it leads now; only on the leader.",
    ("cluster", "group", "replica"),
)
REPLICA_LOSS: Final = Metric(
    "headrace_broker_replica_loss_seconds",
    "gauge",
    "seconds",
    "For how long the replica has lacked some of them; 0: it lacks none; only on the leader.",
    ("cluster", "group", "replica"),
)
FAILOVER_LOSS_BYTES: Final = Metric(
    "headrace_broker_failover_loss_bytes",
    "gauge",
    "bytes",
    "Bytes of messages that were acknowledged and that a failover may lose now: the most that a replica in sync lacks; 0 as long as"
    " all in sync acknowledge; only on the leader.",
    ("cluster", "group"),
)
FAILOVER_LOSS: Final = Metric(
    "headrace_broker_failover_loss_seconds",
    "gauge",
    "seconds",
    "For how long some replica in sync has lacked some of them; only on the leader.",
    ("cluster", "group"),
)
ACKNOWLEDGES_ALONE: Final = Metric(
    "headrace_broker_acknowledges_alone",
    "gauge",
    "1",
    "1: the leader acknowledges alone, and a failover may lose messages; also on the way back, until all in sync have everything.",
    ("cluster", "group"),
)

BROKER_METRICS: Final = (
    *(found for found in tuple(globals().values()) if isinstance(found, Metric)),
    *PROCESS_METRICS,
)
