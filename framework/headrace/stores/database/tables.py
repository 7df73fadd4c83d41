"""
The tables of Headrace, the same on SQLite and PostgreSQL.

    event_streams        what every command did, also where it was rejected or changed nothing: the truth
    store_identity       one row: which event store this is
    snapshots            the newest snapshot of each aggregate that has one
    projections          which generation of each projection is read, and who rebuilds it
    projection_generations  by which version of its definition each generation was built
    projection_offsets   how far each projection generation has read each queue
    projection_versions  the last version of each aggregate that a projection generation has folded
    parked               commands and events that could not be handled, and what waits behind them
    reader_marks         which event topic and event store each reader of events belongs to, and what
                         of them it has seen
    topic_damages        messages of the event topic that cannot be read, and whether the event store
                         has made up for them
    process_instances    where each instance of a process stands: made from its journal, no truth
    process_journal      what each instance has seen, in order
    process_commands     what each instance has sent, or is about to
    processes            a row to lock for each process
    scheduled_messages   messages for later, where the queue is a Kafka cluster
    subject_keys         the keys of personal fields, and who was forgotten

Used by the code that reads and writes the tables. A test compares this module with the sum of the
migrations.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

__all__ = [
    "COMMAND_CONSTRAINT",
    "VERSION_CONSTRAINT",
    "UtcDateTime",
    "event_streams",
    "metadata",
    "parked_rows",
    "process_commands",
    "process_instances",
    "process_journal",
    "process_versions",
    "processes",
    "projection_generations",
    "projection_offsets",
    "projection_versions",
    "projections",
    "reader_marks",
    "scheduled_messages",
    "snapshots",
    "store_identity",
    "subject_keys",
    "topic_damages",
]

COMMAND_CONSTRAINT = "uq_event_streams_command"
VERSION_CONSTRAINT = "uq_event_streams_version"


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, always with the UTC zone in Python; SQLite stores it as UTC text without zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the signature is SQLAlchemy's
        """Turns any zone into UTC.

        Raises:
            ValueError: the moment has no zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the signature is SQLAlchemy's
        """Puts the UTC zone on what the database returns."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData()

event_streams = Table(
    "event_streams",
    metadata,
    # SQLite counts only in a column of exactly the type INTEGER.
    Column(
        "position",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    Column("aggregate_id", String(255), nullable=False),
    Column("aggregate_type", String(127), nullable=False),
    Column("version", BigInteger),  # NULL: it changed no aggregate
    Column("command_id", String(255), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("body", Text, nullable=False),
    Column("checksum", BigInteger),  # NULL: written before there were checksums
    UniqueConstraint("aggregate_id", "version", name=VERSION_CONSTRAINT),
    UniqueConstraint("aggregate_id", "command_id", name=COMMAND_CONSTRAINT),
    # Positions never come back, not even after the newest rows were deleted.
    sqlite_autoincrement=True,
)

# Written at the first request, and never again.
store_identity = Table(
    "store_identity",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("store_id", String(36), nullable=False),
    Column("seal_key", LargeBinary, nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("aggregate_id", String(255), primary_key=True),
    Column("aggregate_type", String(127), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("state_version", Integer, nullable=False),
    Column("body", Text, nullable=False),
)

projections = Table(
    "projections",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("previous_generation", Integer),
    Column("fingerprint", String(64), nullable=False),
    Column("rebuild_generation", Integer),
    Column("rebuild_owner", String(64)),
    Column("rebuild_started_at", UtcDateTime),
    Column("paused_at", UtcDateTime),
)

projection_generations = Table(
    "projection_generations",
    metadata,
    Column("name", String(40), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    # A time or offsets, as a person wrote them; NULL: all events.
    Column("as_of", Text),
    # Services of its version fold events into it, also while another generation is live.
    Column("followed", Boolean, nullable=False),
    # Services do not put it in place by themselves.
    Column("by_command", Boolean, nullable=False),
    PrimaryKeyConstraint("name", "generation"),
)

projection_offsets = Table(
    "projection_offsets",
    metadata,
    Column("name", String(40), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("topic", String(127), nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    PrimaryKeyConstraint("name", "generation", "topic", "queue_id"),
)

projection_versions = Table(
    "projection_versions",
    metadata,
    Column("name", String(40), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("aggregate_id", String(255), nullable=False),
    Column("version", BigInteger, nullable=False),
    PrimaryKeyConstraint("name", "generation", "aggregate_id"),
)

# What could not be handled. A command is a row, and so is each that is held behind it. Of events a
# row is an aggregate whose later events wait; a retry reads them from the event store.
parked_rows = Table(
    "parked",
    metadata,
    Column(
        "number",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    # Of a projection; "handlers:NAME" of event handlers, "process:NAME" of process managers,
    # "instances:NAME" of a process's instances, "commands:" of the command side.
    Column("name", String(127), nullable=False),
    Column("generation", Integer, nullable=False),  # of a projection; 0 of all others
    Column("aggregate_id", String(255), nullable=False),  # of an instance its key
    Column("command_id", String(255), nullable=False),  # empty where events wait
    Column("command", Text, nullable=False),  # its name
    Column("state", String(7), nullable=False),  # parked; of commands also holding, held
    Column("parked_at", UtcDateTime, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),  # its name
    Column("sentence", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Column("held", BigInteger, nullable=False),  # messages that wait, the first one included
    # The last version that a process manager handled; NULL: only rejections wait, or the version
    # is in projection_versions.
    Column("version", BigInteger),
    # The place of the message with the event that failed; NULL: the event came from the event store.
    Column("topic", String(127)),
    Column("queue_id", Integer),
    Column("message_offset", BigInteger),
    Column(
        "message", LargeBinary
    ),  # a command as it came; what no text column could hold is in here
    UniqueConstraint("name", "generation", "aggregate_id", "command_id", name="uq_parked_place"),
    # A number that an operator has noted down never names another row.
    sqlite_autoincrement=True,
)

# Per reader (a projection's generation, "handlers:NAME", "process:NAME"; and "topic:NAME" for the
# topic itself) a row of queue -1, with the store and topic that it belongs to, and one for each queue it reads.
reader_marks = Table(
    "reader_marks",
    metadata,
    Column("name", String(150), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("topic_identity", String(36), nullable=False),
    Column("store_identity", String(36), nullable=False),
    # The offset after a message that it has seen, and that message's command id.
    Column("next_offset", BigInteger, nullable=False),
    Column("message_id", String(255), nullable=False),
    # A stream that it has seen and that was in the event store then.
    Column("aggregate_id", String(255), nullable=False),
    Column("command_id", String(255), nullable=False),
    # Of the topic's brokers, since before it has seen the message; 0: not known.
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("name", "generation", "queue_id"),
)

# A row for each damaged place that a live reader has met, written before any reader passes it.
topic_damages = Table(
    "topic_damages",
    metadata,
    Column("topic", String(150), nullable=False),
    Column("topic_identity", String(36), nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("noted_at", UtcDateTime, nullable=False),
    # The process that publishes what is missing, and until when its claim holds; NULL: no process does.
    Column("taken_by", String(36)),
    Column("taken_until", UtcDateTime),
    # The topic has again all that the event store has.
    Column("filled", Boolean, nullable=False),
    PrimaryKeyConstraint("topic", "topic_identity", "queue_id", "next_offset"),
)

# Locked by every transaction that changes instances of the process.
processes = Table("processes", metadata, Column("name", String(127), primary_key=True))

process_instances = Table(
    "process_instances",
    metadata,
    Column("process", String(127), nullable=False),
    Column("instance", String(255), nullable=False),
    Column("state", Text),  # NULL: no event of its has been handled
    Column("state_version", Integer, nullable=False),
    Column("undo", Text, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("began_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("last_event", String(127), nullable=False),
    Column("last_aggregate_id", String(255), nullable=False),
    Column("seen", BigInteger, nullable=False),
    Column("sent", BigInteger, nullable=False),
    PrimaryKeyConstraint("process", "instance"),
    Index("ix_process_instances_ended", "process", "ended", "changed_at"),
)

process_journal = Table(
    "process_journal",
    metadata,
    Column("process", String(127), nullable=False),
    Column("instance", String(255), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("aggregate_id", String(255), nullable=False),
    Column("command_id", String(255), nullable=False),
    Column("outcome", String(8), nullable=False),  # done, waits, skipped
    PrimaryKeyConstraint("process", "instance", "number"),
    UniqueConstraint(
        "process", "instance", "aggregate_id", "command_id", name="uq_process_journal_cause"
    ),
)

process_commands = Table(
    "process_commands",
    metadata,
    Column("process", String(127), nullable=False),
    Column("command_id", String(36), nullable=False),
    Column("instance", String(255), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("name", String(127), nullable=False),
    Column("aggregate_id", String(255), nullable=False),
    Column("body", Text, nullable=False),
    Column("due", UtcDateTime),
    Column("made_at", UtcDateTime, nullable=False),
    Column("sent", Boolean, nullable=False),
    Column("refused", Text),  # why it was rejected, and no handler was there for that
    PrimaryKeyConstraint("process", "command_id"),
    Index("ix_process_commands_instance", "process", "instance", "number"),
    Index("ix_process_commands_unsent", "process", "sent", "due"),
)

process_versions = Table(
    "process_versions",
    metadata,
    Column("process", String(127), nullable=False),
    Column("aggregate_id", String(255), nullable=False),
    Column("version", BigInteger, nullable=False),
    PrimaryKeyConstraint("process", "aggregate_id"),
)

scheduled_messages = Table(
    "scheduled_messages",
    metadata,
    Column(
        "number",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    Column("due", UtcDateTime, nullable=False),
    Column("topic", String(249), nullable=False),  # as long as Kafka lets a topic's name be
    Column("message", LargeBinary, nullable=False),  # all of it, as it goes out
    Index("ix_scheduled_messages_due", "due", "number"),
)

subject_keys = Table(
    "subject_keys",
    metadata,
    Column("subject", String(255), primary_key=True),
    Column("key", LargeBinary),  # NULL: destroyed
    Column("wrapped", Boolean, nullable=False),  # the key is encrypted by a key of another place
    Column("made_at", UtcDateTime, nullable=False),
    Column("forgotten_at", UtcDateTime),
)
