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
        broker: `host:port` of the broker; None keeps every message in this process.
        event_store: `memory://`, `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        read_models: where projections keep their tables; `sqlite:///FILE` or `postgresql://…`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    broker: str | None = None
    # What this process is called at the broker, in every consumer group: others of the application need
    # other names. One that comes back under its name within 30 s gets its queues back, and no other member is
    # disturbed. Empty: a random name, and the others take over at once.
    name: str = ""
    event_store: str = "memory://"
    read_models: str = "sqlite://"

    # More queues than service processes you will ever want side by side.
    command_queues: int = Field(default=4, ge=1, le=1_024)
    event_queues: int = Field(default=4, ge=1, le=1_024)
    # Topics of commands that this process handles, by their short names, "main" for the one that
    # commands share. None named: all of them.
    command_topics: tuple[str, ...] = ()

    # Commands accepted from the queue and not yet finished, per process; bounds memory.
    commands_in_flight_max: int = Field(default=2_000, ge=1)
    # Streams per transaction (ENode's batch): more add latency, not speed.
    commit_streams_max: int = Field(default=1_000, ge=1)
    # Live aggregates kept in memory, and how long an unused one stays (ENode: 3 days, no bound).
    aggregates_cached_max: int = Field(default=10_000, ge=1)
    aggregate_idle_ms: int = Field(default=3_600_000, ge=1_000)
    # Newest commands that a process remembers, with 32 bytes each, to answer duplicates without a look into
    # the store: some seconds of the highest throughput, in which most duplicates come.
    commands_remembered_max: int = Field(default=65_536, ge=2)
    # Events of an aggregate between two snapshots: what a load reads at most, give or take one
    # command. 0: none are taken or read.
    snapshot_events: int = Field(default=100, ge=0)
    # Snapshots that wait to be stored, per process; bounds memory, further ones are dropped.
    snapshots_waiting_max: int = Field(default=1_000, ge=1)
    # Runs of one command that meet a version conflict before it fails as "busy".
    conflict_retries_max: int = Field(default=10, ge=0)
    # Runs of a command that meets an unexpected error before it is parked.
    error_retries_max: int = Field(default=5, ge=0)
    # What becomes of an aggregate's later commands when one was parked: "go on" handles them; "hold"
    # holds them behind it, in their order, until it is retried or skipped.
    after_parked: Literal["go on", "hold"] = "go on"
    # Commands parked and held before the command side stands still: as many are no accident but a
    # release that is broken.
    command_letters_max: int = Field(default=10_000, ge=1)
    # First and longest pause between such runs; doubled in between, with jitter.
    retry_ms_min: int = Field(default=50, ge=1)
    retry_ms_max: int = Field(default=5_000, ge=1)

    # How long `execute` waits for a result.
    result_timeout_ms: int = Field(default=30_000, ge=1)
    # A reply that a crash lost is asked for again after one to two of these; long enough that an
    # ordinary backlog does not double itself.
    result_resend_ms: int = Field(default=5_000, ge=1)
    # Commands that one bus has under way before the next `execute` waits.
    bus_in_flight_max: int = Field(default=10_000, ge=1)

    # Streams folded into a projection per transaction.
    projection_batch_max: int = Field(default=1_000, ge=1)
    # Aggregates, or instances, that one reader of events parks before it stands still: as many are no
    # accident but a fold that is wrong.
    projection_letters_max: int = Field(default=1_000, ge=0)
    # How long one event may find away what its handler needs while the handler succeeds for others; then
    # its aggregate is parked. Longer than a restart of what is needed, and the messages behind it wait
    # no longer than this. Where no call succeeds the outage is waited out, however long.
    handler_outage_ms: int = Field(default=300_000, ge=1)
    # An ended instance of a process stays so long, with its journal: until then nothing that comes late
    # for its key starts it again. Four times what a broker keeps unconsumed messages, and a month to
    # look things up. None: for ever.
    process_ended_ms: int | None = Field(default=2_592_000_000, ge=1)

    # How far behind the event topic a projection may be before the service is not ready: messages, and
    # age of the oldest one that waits. What a restart leaves is caught up below both.
    lag_messages_max: int = Field(default=100_000, ge=0)
    lag_ms_max: int = Field(default=60_000, ge=1)
    # Between two heartbeats, messages that go through every queue of the event topic so that the lag
    # tells the truth where nothing else comes. 0: none, because the topic keeps them for ever; at
    # 10,000 about a gigabyte in a hundred queue-years.
    heartbeat_ms: int = Field(default=0, ge=0)

    # From so many parked aggregates of one projection on, and from such an age of the oldest on, there
    # is an alarm in the log and in `GET /health`. One is worth a look, and a day is too long.
    letters_alarm_count: int = Field(default=1, ge=1)
    letters_alarm_age_ms: int = Field(default=86_400_000, ge=1)
    # Between two looks at the letters.
    alarm_check_ms: int = Field(default=10_000, ge=1)
    # Between two looks whether the event topic is the one that its readers know, and two notes of what
    # they have seen: a restored copy that lacks no more than the last of them is not found out.
    lineage_check_ms: int = Field(default=5_000, ge=1)
    # A process that fills the event topic after damage says so often that its claim does not end; one
    # that died leaves the work to another after this. Longer than a pause of the process or its database.
    fill_claim_ms: int = Field(default=30_000, ge=100)

    # "console" for people, "json" for what collects logs.
