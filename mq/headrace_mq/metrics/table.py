"""
What a metric is: its name, its kind, its labels and its meaning. PURE.

A table of these is the only place that knows the metrics of a process: the text for Prometheus and the page
`docs/metrics.md` are made of it.

Used by the tables of brokers and of applications, and by `exposition`.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from headrace_mq.metrics.histogram import Counts

__all__ = ["BUILD_INFO", "PROCESS_METRICS", "Metric", "Sample", "markdown"]

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: as Prometheus knows it; that of a counter ends in `_total`.
        kind: how its values change.
        unit: of its values.
        meaning: one sentence for its reader.
        labels: names of what tells its series apart.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def series_names(self) -> tuple[str, ...]:
        """The names that its series have in the text."""
        if self.kind != "histogram":
            return (self.name,)
        return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")

    def sample(self, value: "float | Counts", *labels: str) -> "Sample":
        """Returns a value of one series; the labels are in the metric's order."""
        return Sample(self, labels, value)


class Sample(NamedTuple):
    """The value of one series at this moment; of a histogram all that it has counted."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Counts


# Of every process that serves metrics.
BUILD_INFO: Final = Metric(
    "headrace_build_info", "gauge", "1", "The versions in use; the value is always 1.",
    ("version", "python", "system"),
)  # fmt: skip
PROCESS_METRICS: Final = (
    BUILD_INFO,
    Metric("process_cpu_seconds_total", "counter", "seconds", "Processor time of the process."),
    Metric("process_resident_memory_bytes", "gauge", "bytes", "Memory that the process holds."),
    Metric("process_virtual_memory_bytes", "gauge", "bytes", "Memory that the process has asked for."),
    Metric("process_start_time_seconds", "gauge", "seconds since 1970", "When the process started."),
    Metric("process_open_fds", "gauge", "files", "Files and connections that are open."),
    Metric("process_max_fds", "gauge", "files", "Files and connections that may be open."),
)  # fmt: skip


def markdown(metrics: Sequence[Metric]) -> str:
    """Returns the metrics as a table in Markdown."""
    rows = ["| Metric | Kind | Unit | Labels | Meaning |", "|---|---|---|---|---|"]
    for one in metrics:
        labels = " ".join(f"`{label}`" for label in one.labels)
        rows.append(f"| `{one.name}` | {one.kind} | {one.unit} | {labels} | {one.meaning} |")
    return "\n".join([*rows, ""])
