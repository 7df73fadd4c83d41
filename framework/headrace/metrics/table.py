"""
The metrics of an application: the one table that the text for Prometheus and `docs/metrics.md` are made of. PURE.

Used by `collector` and `database`, which know the values, and by tests of the alert rules and the dashboard.
"""

from typing import Final

from headrace_mq.metrics.table import PROCESS_METRICS, Metric

__all__ = ["APP_METRICS"]

COMMANDS: Final = Metric(
    "headrace_app_commands_total",
    "counter",
    "commands",
    "Commands that were answered, by outcome: executed, unchanged, rejected, or failed, which means parked. A repeated"
    " command counts again.",
    ("outcome",),
)
CONFLICTS: Final = Metric(
    "headrace_app_command_conflicts_total",
    "counter",
    "runs",
    "Runs of commands that were repeated because others had changed the aggregate.",
)
IN_FLIGHT: Final = Metric(
    "headrace_app_commands_in_flight",
    "gauge",
    "commands",
    "Commands that were accepted from the queue and are not finished.",
)
HANDLER: Final = Metric(
    "headrace_app_command_handler_seconds",
    "histogram",
    "seconds",
    "Duration of a run of a command's handler, with the load of its aggregate.",
    ("command",),
)
COMMIT: Final = Metric(
    "headrace_app_commit_seconds",
    "histogram",
    "seconds",
    "Duration of an append to the event store, which may have the events of many commands.",
)
CACHED: Final = Metric(
    "headrace_app_aggregates_cached", "gauge", "aggregates", "Aggregates in memory."
)
CACHE_HITS: Final = Metric(
    "headrace_app_cache_hits_total",
    "counter",
    "lookups",
    "Aggregates with new commands that were in memory.",
)
CACHE_MISSES: Final = Metric(
    "headrace_app_cache_misses_total",
    "counter",
    "lookups",
    "Aggregates with new commands that were not in memory.",
)
READER: Final = Metric(
    "headrace_app_reader_seconds",
    "histogram",
    "seconds",
    "Duration of a reaction, with its retries: of event handlers to one message, of projections and process managers"
    " to a batch.",
    ("reader",),
)
END_TO_END: Final = Metric(
    "headrace_app_reader_end_to_end_seconds",
    "histogram",
    "seconds",
    "From when the queue stored a message until its reaction ended, of a batch's oldest message. The clocks of both"
    " machines count. What is older than 30 s is in the last bucket, so a quantile of it reads 30.",
    ("reader",),
)
EVENT_HANDLER: Final = Metric(
    "headrace_app_event_handler_seconds",
    "histogram",
    "seconds",
    "Duration of a call of an event handler, whether it succeeds or fails.",
    ("reader", "handler"),
)
READ: Final = Metric(
    "headrace_app_reader_messages_total",
    "counter",
    "messages",
    "Messages that a reader was done with.",
    ("reader",),
)
READER_FAILURES: Final = Metric(
    "headrace_app_reader_failures_total",
    "counter",
    "attempts",
    "Attempts of a reader that failed and were repeated, or after which something was parked.",
    ("reader",),
)
READER_STATE: Final = Metric(
    "headrace_app_reader_state",
    "gauge",
    "1",
    "1 for the state of a reader, 0 for the other states: starting, running, retrying, paused, failed.",
    ("reader", "state"),
)
POSITION: Final = Metric(
    "headrace_app_projection_position",
    "gauge",
    "messages",
    "Messages of the event topic that the live rows of a projection contain, over all queues.",
    ("projection",),
)
LAG_MESSAGES: Final = Metric(
    "headrace_app_projection_lag_messages",
    "gauge",
    "messages",
    "Messages of the event topic that they do not contain yet.",
    ("projection",),
)
LAG: Final = Metric(
    "headrace_app_projection_lag_seconds",
    "gauge",
    "seconds",
    "Age of the oldest of these messages; 0 without one.",
    ("projection",),
)
PROJECTION_PAUSED: Final = Metric(
    "headrace_app_projection_paused",
    "gauge",
    "1",
    "1: the projection, or its group at the broker, is paused.",
    ("projection",),
)
LAG_UNKNOWN: Final = Metric(
    "headrace_app_lag_unknown",
    "gauge",
    "1",
    "1: the lag of projections could not be read in time, because a database or the broker does not answer; then the"
    " metrics of projections and process instances are missing.",
)
PARKED: Final = Metric(
    "headrace_app_parked",
    "gauge",
    "letters",
    "What is parked: commands, aggregates of a reader, or instances of a process, as of the last check"
    " (`alarm_check_ms`).",
    ("processor",),
)
PARKED_AGE: Final = Metric(
    "headrace_app_parked_oldest_seconds",
    "gauge",
    "seconds",
    "How long the oldest of them is parked.",
    ("processor",),
)
ALARM: Final = Metric(
    "headrace_app_alarm",
    "gauge",
    "1",
    "1 for each alarm in `GET /health`; there is no series without one.",
    ("about", "kind"),
)
INSTANCES: Final = Metric(
    "headrace_app_process_instances",
    "gauge",
    "instances",
    "Instances of a process that have not ended. No more than 100,000 are counted.",
    ("process",),
)
REQUESTS: Final = Metric(
    "headrace_app_http_requests_total",
    "counter",
    "requests",
    "HTTP requests that were answered, by the first part of their path and the status.",
    ("route", "status"),
)
REQUEST: Final = Metric(
    "headrace_app_http_request_seconds",
    "histogram",
    "seconds",
    "From an HTTP request to the begin of its answer.",
    ("route",),
)
HTTP_CERTIFICATE: Final = Metric(
    "headrace_app_certificate_expires_seconds",
    "gauge",
    "seconds since 1970",
    "When the certificate of the HTTP gateway expires; only with one.",
)
READ_ONLY: Final = Metric(
    "headrace_app_read_only",
    "gauge",
    "1",
    "1: a database takes no writes, so nothing runs and commands are refused.",
)

APP_METRICS: Final = (
    *(found for found in tuple(globals().values()) if isinstance(found, Metric)),
    *PROCESS_METRICS,
)
