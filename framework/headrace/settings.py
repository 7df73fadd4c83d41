"""
Every setting of the framework with its default, its unit and its reason, validated once.

Values only: nothing here reads the environment or a file; the command line does.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Settings"]


class Settings(BaseModel):
    """How an application runs.

    Args:
        broker: `host:port` of the broker, or several separated by commas; or `kafka://host:port,…`.
        event_store: `memory://`, `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        read_models: where projections keep their tables; `sqlite:///FILE` or `postgresql://…`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # `host:port` of the broker. If the broker may move, several separated by commas: the first one that
    # answers is used. `kafka://host:port,…` is a Kafka cluster. None keeps every message in this process.
    # Not shown: the options of a cluster may be secrets.
    broker: str | None = Field(default=None, repr=False)
    # The name of this process at the broker, in every consumer group. Each process of the application needs
    # another name. A process that returns under its name within 30 s gets its queues back, and no other member
    # is disturbed. Empty: a random name, and the others take over at once.
    name: str = ""
    event_store: str = "memory://"
    read_models: str = "sqlite://"

    # More queues than service processes you will ever run at the same time.
    command_queues: int = Field(default=4, ge=1, le=1_024)
    event_queues: int = Field(default=4, ge=1, le=1_024)
    # Topics of commands that this process handles, by their short names; "main" is the topic that
    # commands share. Empty: all topics.
    command_topics: tuple[str, ...] = ()

    # Commands accepted from the queue and not yet finished, per process; bounds memory.
    commands_in_flight_max: int = Field(default=2_000, ge=1)
    # Streams per transaction (ENode's batch): more add latency, not speed.
    commit_streams_max: int = Field(default=1_000, ge=1)
    # Live aggregates kept in memory, and how long an unused one stays (ENode: 3 days, no bound).
    aggregates_cached_max: int = Field(default=10_000, ge=1)
    aggregate_idle_ms: int = Field(default=3_600_000, ge=1_000)
    # Newest commands that a process remembers, with 32 bytes each, to answer duplicates without a query to
    # the store: some seconds of the highest throughput, in which most duplicates come.
    commands_remembered_max: int = Field(default=65_536, ge=2)
    # Events of an aggregate between two snapshots: a load reads at most about this many events.
    # 0: no snapshots are taken or read.
    snapshot_events: int = Field(default=100, ge=0)
    # Snapshots that wait to be stored, per process; bounds memory, further ones are dropped.
    snapshots_waiting_max: int = Field(default=1_000, ge=1)
    # Runs of one command that meet a version conflict before it fails as "busy".
    conflict_retries_max: int = Field(default=10, ge=0)
    # Runs of a command that meets an unexpected error before it is parked.
    error_retries_max: int = Field(default=5, ge=0)
    # What happens to an aggregate's later commands after one is parked: "go on" handles them; "hold"
    # holds them behind it, in their order, until it is retried or skipped.
    after_parked: Literal["go on", "hold"] = "go on"
    # Above this many parked and held commands the service handles no more commands: so many mean that
    # the release is broken.
    command_letters_max: int = Field(default=10_000, ge=1)
    # First and longest pause between such runs; doubled in between, with jitter.
    retry_ms_min: int = Field(default=50, ge=1)
    retry_ms_max: int = Field(default=5_000, ge=1)

    # How long a resource of the application may take to open: longer than a server that starts at the
    # same time needs. And to close: all parts must stop within the 30 s of an orchestrator.
    resource_open_ms: int = Field(default=60_000, ge=1)
    resource_close_ms: int = Field(default=10_000, ge=1)

    # How long `App.client` waits for a broker when it starts: longer than a restart of the broker takes, and
    # short for a person who gave the wrong address. `headrace run` waits half a minute.
    connect_ms: int = Field(default=5_000, ge=1)
    # How long `execute` waits for a result.
    result_timeout_ms: int = Field(default=30_000, ge=1)
    # If a crash lost the reply, the bus asks again after one to two times this long; long enough that an
    # ordinary backlog does not double itself.
    result_resend_ms: int = Field(default=5_000, ge=1)
    # Commands that one bus has under way before the next `execute` waits.
    bus_in_flight_max: int = Field(default=10_000, ge=1)

    # Streams folded into a projection per transaction.
    projection_batch_max: int = Field(default=1_000, ge=1)
    # When the rows of a projection's newer version go live. "on_catch_up": the services switch as soon as
    # the new rows have every event that the live rows have, so a deploy needs no second step.
    # "by_command": you run `headrace projection switch`.
    projection_switch: Literal["on_catch_up", "by_command"] = "on_catch_up"
    # A reader of events stops after it has parked this many aggregates or instances: so many poison
    # events mean that a fold or a handler is wrong.
    projection_letters_max: int = Field(default=1_000, ge=0)
    # If a handler meets an outage for one event but succeeds for others, the event's aggregate is parked
    # after this time. Longer than a restart of the server that the handler calls; messages behind the event
    # wait no longer than this. If no call of the handler succeeds, it waits for the end of the outage.
    handler_outage_ms: int = Field(default=300_000, ge=1)
    # How long an ended instance of a process is kept, with its journal: until then a late event for its key
    # does not start it again. Four times as long as a broker keeps unconsumed messages, and a month to
    # look things up. None: for ever.
    process_ended_ms: int | None = Field(default=2_592_000_000, ge=1)

    # How far behind the event topic a projection may be before the service is not ready: in messages, and
    # in age of the oldest waiting message. After a restart a projection catches up within both.
    lag_messages_max: int = Field(default=100_000, ge=0)
    lag_ms_max: int = Field(default=60_000, ge=1)
    # Time between two heartbeats: messages in every queue of the event topic, which show the lag of a reader
    # when no events come. 0: no heartbeats. The topic keeps them for ever; at 10,000 they take about 10 MB
    # per queue and year.
    heartbeat_ms: int = Field(default=0, ge=0)

    # With this many parked aggregates of one projection, or if the oldest is older than this, there is an
    # alarm in the log and in `GET /health`. One is worth a look, and a day is too long.
    letters_alarm_count: int = Field(default=1, ge=1)
    letters_alarm_age_ms: int = Field(default=86_400_000, ge=1)
    # Time between two checks for alarms.
    alarm_check_ms: int = Field(default=10_000, ge=1)
    # How often readers check that the event topic is the one they know, and note the last event that they
    # have seen. A restored copy that lacks only events since the last note is not noticed.
    lineage_check_ms: int = Field(default=5_000, ge=1)
    # A process that republishes events after damage renews its claim to that work; if it dies, another
    # process takes over after this. Longer than a pause of the process or its database.
    fill_claim_ms: int = Field(default=30_000, ge=100)

    # Share of the messages, 0 to 1, of which this process tells when it got them and was done: a command's
    # journey shows it. Each of the two is a message more in the broker's topic %TRACE%, sent 200 ms later with others; at 0
    # no message is looked at. 0.01 is cheap and finds what is slow; 1 shows every command, at a development's load.
    trace_share: float = Field(default=0.0, ge=0, le=1)

    # HOST:PORT where `headrace run` answers `GET /metrics` with figures for Prometheus; None: nowhere. Without
    # `--insecure` only programs on this machine reach it.
    metrics: str | None = None

    # "console" for people, "json" for log collectors.
