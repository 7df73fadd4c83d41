"""
Collects all samples of a running application when Prometheus asks.

    headrace run ─▶ listener ─▶ AppMetrics.text ─▶ commands │ readers │ alarms │ gateway │ database ─▶ text

Used by `headrace run`, which has the application; it changes nothing but that durations are measured.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import chain
from typing import Protocol, cast

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.work import Durations
from headrace.metrics import table
from headrace.metrics.database import DatabaseFigures
from headrace.parked import COMMANDS, processor_of
from headrace.running_app import RunningApp
from headrace.subscriptions.status import ReaderState
from headrace_mq.metrics.exposition import process_samples, written
from headrace_mq.metrics.histogram import Histogram
from headrace_mq.metrics.table import Metric, Sample

__all__ = ["AppMetrics", "GatewayWork"]

_OUTCOMES = ("executed", "unchanged", "rejected", "failed")


class GatewayWork(Protocol):
    """What an HTTP gateway has done; `Gateway` has it."""

    @property
    def requests(self) -> Mapping[tuple[str, int], int]:
        """How many requests were answered, by route and status."""
        ...

    @property
    def times(self) -> Mapping[str, Durations]:
        """How long they took, by route, if that is measured."""
        ...

    def measure(self, new: Callable[[], Durations]) -> None:
        """Measures from now on how long requests take."""
        ...


class AppMetrics:
    """The metrics of one process of an application.

    Args:
        running: the application at work.
        gateway: in front of it, if there is one.
        certificate_expires_s: returns when the gateway's certificate expires, in seconds since 1970.
        clock: for the age of what is parked.
    """

    def __init__(
        self,
        running: RunningApp,
        gateway: GatewayWork | None = None,
        certificate_expires_s: Callable[[], float | None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._running = running
        self._gateway = gateway
        self._certificate_expires_s = certificate_expires_s
        self._clock = clock or SystemClock()
        self._database = DatabaseFigures(running, self._clock)
        for reader in running.readers.values():
            reader.measure(Histogram)
        if running.commands is not None:
            running.commands.measure(Histogram)
        if gateway is not None:
            gateway.measure(Histogram)

    async def text(self) -> bytes:
        """Returns the metrics of this moment as Prometheus reads them."""
        asked = await self._database.samples()
        return await written(chain(self.samples(), asked))

    def samples(self) -> Iterator[Sample | None]:
        """Yields every sample for which no database is asked."""
        yield from process_samples()
        yield table.READ_ONLY.sample(self._running.read_only is not None)
        yield from self._commands()
        yield from self._readers()
        yield from self._alarms()
        yield from self._requests()

    def _commands(self) -> Iterator[Sample]:
        commands = self._running.commands
        if commands is None:
            return
        work, cache = commands.work, commands.cache
        for outcome in dict.fromkeys((*_OUTCOMES, *work.outcomes)):
            yield table.COMMANDS.sample(work.outcomes[outcome], outcome)
        yield table.CONFLICTS.sample(work.conflicts)
        yield table.IN_FLIGHT.sample(commands.in_flight)
        yield table.CACHED.sample(len(cache))
        yield table.CACHE_HITS.sample(cache.hits)
        yield table.CACHE_MISSES.sample(cache.misses)
        yield _histogram(table.COMMIT, work.commits)
        for name, durations in (work.handlers or {}).items():
            yield _histogram(table.HANDLER, durations, name)

    def _readers(self) -> Iterator[Sample]:
        for name, reader in self._running.readers.items():
            yield table.READ.sample(reader.handled, name)
            yield table.READER_FAILURES.sample(reader.failures, name)
            yield _histogram(table.READER, reader.times, name)
            yield _histogram(table.END_TO_END, reader.ages, name)
            for handler, durations in reader.handlers.items():
                yield _histogram(table.EVENT_HANDLER, durations, name, handler)
            for state in ReaderState:
                yield table.READER_STATE.sample(reader.status.state is state, name, state.value)

    def _alarms(self) -> Iterator[Sample]:
        watch = self._running.watch
        if watch is None:
            return
        now = self._clock.now()
        parked = watch.alarms.parked
        for name, (count, oldest) in parked.items():
            processor = name if name == COMMANDS else processor_of(name)
            yield table.PARKED.sample(count, processor)
            yield table.PARKED_AGE.sample(max(0, (now - oldest) / timedelta(seconds=1)), processor)
        if COMMANDS not in parked:
            yield table.PARKED.sample(0, COMMANDS)
        for alarm in watch.alarms.current:
            yield table.ALARM.sample(1, alarm.projection, alarm.kind)

    def _requests(self) -> Iterator[Sample]:
        if self._gateway is None:
            return
        for (route, status), count in self._gateway.requests.items():
            yield table.REQUESTS.sample(count, route, str(status))
        for route, durations in self._gateway.times.items():
            yield _histogram(table.REQUEST, durations, route)
        if (expires_s := self._certificate_expires_s()) is not None:
            yield table.HTTP_CERTIFICATE.sample(expires_s)


def _histogram(metric: Metric, durations: Durations | None, *labels: str) -> Sample:
    # All of them are measured in histograms: `AppMetrics` has seen to that.
    return metric.sample(cast("Histogram", durations).read(), *labels)
