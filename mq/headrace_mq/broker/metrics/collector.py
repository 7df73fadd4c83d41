"""
Collects all samples of a broker process when Prometheus asks.

    process ─▶ listener ─▶ BrokerMetrics.text ─▶ disk │ group │ state: parts, topics, groups ─▶ text

Used by `process`, which has the broker; uses the other parts of `broker.metrics`.
"""

from collections.abc import Callable, Iterator

from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.usage import UNKNOWN, usage
from headrace_mq.broker.metrics import table
from headrace_mq.broker.metrics.groups import group_samples
from headrace_mq.broker.metrics.parts import part_samples, read_samples, replica_samples
from headrace_mq.broker.metrics.topics import TopicFigures
from headrace_mq.broker.reads.read_counts import ReadCounts
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.disk import DiskForecast
from headrace_mq.metrics.exposition import process_samples, written
from headrace_mq.metrics.table import Sample
from headrace_mq.settings import BrokerSettings

__all__ = ["BrokerMetrics"]


class BrokerMetrics:
    """The metrics of one broker process.

    Args:
        settings: of the broker.
        state: returns the state of the broker that serves clients; None where none does.
        group: returns the figures of its group; None for a lone broker.
        clock: for the forecast of the disk.
        reads: returns what this process has served as a replica; None: it is none.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        state: Callable[[], BrokerState | None],
        group: Callable[[], GroupFigures | None],
        clock: Clock | None = None,
        reads: Callable[[], ReadCounts | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._group = group
        self._clock = clock or SystemClock()
        self._forecast = DiskForecast()
        self._topics = TopicFigures(settings.metrics_topics_max)
        self._reads, self._read_topics = reads, TopicFigures(settings.metrics_topics_max)

    async def text(self) -> bytes:
        """Returns the metrics of this moment as Prometheus reads them."""
        return await written(self.samples())

    def samples(self) -> Iterator[Sample | None]:
        """Yields every sample; None where others may have their turn."""
        yield from process_samples()
        yield from self._disk()
        figures = self._group()
        if figures is not None:
            yield from replica_samples(figures)
        state = self._state()
        if state is None:
            reads = self._reads()
            if reads is not None:
                yield from read_samples(reads)
                yield from self._read_topics.reads(reads.fetched)
            return
        yield from part_samples(state)
        yield from self._topics.samples(state)
        settings = self._settings
        yield from group_samples(
            state, groups_max=settings.metrics_groups_max, queues_max=settings.metrics_queues_max
        )

    def _disk(self) -> Iterator[Sample]:
        store = self._settings.store
        found = usage(store.directory)
        if (
            found.disk_bytes == UNKNOWN
        ):  # `headrace_broker_takes_messages` says that it cannot be used
            return
        refused = found.disk_bytes * store.disk_refuse_percent // 100
        room = max(0, refused - (found.disk_bytes - found.disk_free_bytes))
        yield table.DISK_FREE.sample(found.disk_free_bytes)
        yield table.DISK_SIZE.sample(found.disk_bytes)
        yield table.DISK_ROOM.sample(room)
        days = self._forecast.days_left(self._clock.monotonic_ms(), room)
        if days is not None:
            yield table.DISK_DAYS.sample(days)
