"""
What a rebuild did, for a person and for a machine.

Used by `rebuild`, which fills it, and by the command line and benchmarks, which print it. It knows
no Spark and no database.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["RebuildReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """One rebuild.

    Attributes:
        projection: its name.
        generation: the shadow's number; its table is `table`.
        table: where the rows are.
        source: what was folded: the event "topic" or the event "store".
        start: "zero" or "offsets"; "keys" or "time" where only some rows were rebuilt.
        start_offsets: where reading began, by `topic/queue`; of the store, positions.
        end_offsets: where reading ended.
        caught_up_offsets: where the shadow stood when it was compared and switched.
        archived: messages that came from exported files instead of the broker.
        exported: how Spark read those files: "columns", or "messages" and why; empty without files.
        queues: what reading each queue took, where the engine tells: `messages`, `bytes`, `read_ms` of
            waiting for the broker or files, and `work_ms` of everything else in the process.
        tasks: that have read messages; 0: they were read in this process, or there were none to read.
        reused: tasks of a rebuild that was killed, whose rows were copied and are part of the result.
        events: events folded by Spark.
        caught_up: messages applied after Spark, to reach the live generation.
        rows: rows in the shadow when Spark's result was written.
        duplicates: streams that stood in the topic before and were skipped.
        gaps: aggregates of which a later version stood before an earlier one.
        filled: streams that were missing in the topic and came from the event store.
        foreign: messages that were passed over: neither sealed by the event store nor in it.
        left_out: of each aggregate with a stream that does not decode, what is the matter; what came
            after that stream is not in the rows, as it is not live, where the aggregate is parked.
        keys: of the rows that were rebuilt; None: all.
        mended: how many of those differ from the live ones; None if nothing was compared.
        compared: rows compared; None if nothing was compared.
        mismatches: how many of them differ from the live generation's, though they should not.
        differences: the first of them, as (key, live row, rebuilt row).
        columns: how many of them differ in each column; "no live row" and "no rebuilt row" count
            those that one side lacks.
        samples: the first of them for each of those, as (key, live value, rebuilt value); the whole row
            where one side has none.
        behind: aggregates that the event store has events of which the live rows lack.
        ahead: aggregates that the live rows have events of which the event store lacks.
        switched: whether the shadow is live now.
        reason: why not compared or not switched; empty otherwise.
        seconds: time by phase; `total` leaves out starting Spark.
        events_per_second: of reading and folding.
    """

    projection: str
    generation: int
    table: str
    source: str = "topic"
    start: str
    start_offsets: dict[str, int] = field(default_factory=dict)
    end_offsets: dict[str, int] = field(default_factory=dict)
    caught_up_offsets: dict[str, int] = field(default_factory=dict)
    archived: int = 0
    exported: str = ""
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    tasks: int = 0
    reused: int = 0
    events: int = 0
    caught_up: int = 0
    rows: int = 0
    duplicates: int = 0
    gaps: int = 0
    filled: int = 0
    foreign: int = 0
    left_out: tuple[str, ...] = ()
    keys: int | None = None
    mended: int | None = None
    compared: int | None = None
    mismatches: int = 0
    differences: tuple[tuple[str, Any, Any], ...] = ()
    columns: dict[str, int] = field(default_factory=dict)
    samples: dict[str, tuple[tuple[str, Any, Any], ...]] = field(default_factory=dict)
    behind: int = 0
    ahead: int = 0
    switched: bool = False
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    events_per_second: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether live rows were compared, all of them, and are what the events make."""
        return self.compared is not None and not (self.mismatches or self.behind or self.ahead)

    @property
    def messages(self) -> dict[str, int]:
        """How many messages were to be read, by `topic/queue`."""
        starts = self.start_offsets
        return {name: end - starts.get(name, 0) for name, end in self.end_offsets.items()}

    @property
    def skew(self) -> float:
        """How many times the mean the largest queue has; 1 if all are alike."""
        counts = self.messages.values()
        return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0

    @property
    def bytes_read(self) -> int | None:
        """Of messages, where the engine tells."""
        sizes = [each["bytes"] for each in self.queues.values() if "bytes" in each]
        return sum(sizes) if sizes else None

    def to_json(self) -> str:
        """Returns the report as one line of JSON, with `skew` and `bytes_read`."""
        told = {"skew": round(self.skew, 3), "bytes_read": self.bytes_read}
        return msgspec.json.encode({**msgspec.to_builtins(self), **told}).decode()
