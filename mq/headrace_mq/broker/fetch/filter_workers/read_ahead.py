"""
The jobs of filter workers for readers that are far behind, and the results that wait for these readers.

    ask ─▶ a job ─▶ result, held until its reader takes it ─▶ the next job begins at once

So a worker runs while the reader handles the previous result. Used by `scan`, whose fetches ask and take;
uses `workers`. Stored messages never change, so a result stays true.
"""

from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from headrace_mq.broker.fetch.filter_workers.jobs import Job, JobResult
from headrace_mq.broker.fetch.filter_workers.workers import FilterWorkers
from headrace_mq.message import QueueRef
from headrace_mq.store.message_store import MessageStore

__all__ = ["FilterRequest", "ReadAhead"]

# Bytes of one job: some milliseconds of work, much more than the cost of passing it on.
JOB_BYTES = 4 << 20
# Batches of one job: small batches are more work, for this many some tens of milliseconds.
JOB_BATCHES_MAX = 1_024
# For smaller jobs, passing them on would take longer than filtering here.
JOB_BYTES_MIN = 512 << 10
JOB_BATCHES_MIN = 64
# A job ends when it has found this many bytes: they fit into one fetch.
ANSWER_BYTES = 256 << 10
# Jobs that wait for a worker, some 30 ms each; above it, the broker filters for a reader itself.
WAITING_MAX = 32
# Bytes of results that no reader has taken: their readers may be gone.
HELD_BYTES_MAX = 16 << 20
# If more than one byte in this many matches, filtering here is quicker.
RARE_SHARE = 4


class FilterRequest(NamedTuple):
    """The messages that a reader wants from a queue, from an offset on."""

    queue: QueueRef
    offset: int
    condition: str
    picks: bool


class ReadAhead:
    """All filter jobs of a broker.

    Args:
        store: of the queues.
        workers: do the jobs.
        arrived: called with the queues of which a result has arrived.
    """

    def __init__(
        self,
        store: MessageStore,
        workers: FilterWorkers,
        arrived: Callable[[Collection[QueueRef]], None],
    ) -> None:
        self._store = store
        self._workers = workers
        self._arrived = arrived
        self._coming: set[FilterRequest] = set()
        self._held: OrderedDict[FilterRequest, JobResult] = OrderedDict()
        self._held_bytes = 0
        workers.on_rest = self._forget

    def is_coming(self, wanted: FilterRequest) -> bool:
        """Whether a worker is doing it: `arrived` will be called."""
        return wanted in self._coming

    def take(self, wanted: FilterRequest) -> JobResult | None:
        """Returns the result for a request, if there is one, and drops it."""
        result = self._held.pop(wanted, None)
        if result is not None:
            self._held_bytes -= result.size
        return result

    def go_on(self, wanted: FilterRequest, result: JobResult) -> None:
        """Starts the next job after the result that its reader takes now, if few messages match."""
        if result.size * RARE_SHARE <= result.looked_bytes:
            self.ask(wanted._replace(offset=result.next))

    def ask(self, wanted: FilterRequest) -> bool:
        """Starts a job; returns False if the backlog is too small, or if no worker is free."""
        if wanted in self._coming or wanted in self._held:
            return True
        if self._workers.waiting >= WAITING_MAX or not self._workers.at_hand:
            return False
        queue = wanted.queue
        stretch = self._store.file_range_from(queue, wanted.offset, JOB_BYTES, JOB_BATCHES_MAX)
        if stretch is None:
            return False
        entries = stretch.entries
        size = sum(entry.length for entry in entries)
        if size < JOB_BYTES_MIN and len(entries) < JOB_BATCHES_MIN:
            return False
        if not self._workers.ready():
            return False
        job = Job(
            wanted.condition, wanted.picks, *queue, str(stretch.path), stretch.shift, entries,
            ANSWER_BYTES,
        )  # fmt: skip
        self._coming.add(wanted)
        self._workers.submit(job).add_done_callback(partial(self._done, wanted))
        return True

    def _done(self, wanted: FilterRequest, answer: "Future[JobResult | None]") -> None:
        self._coming.discard(wanted)
        result = answer.result()
        if result is not None and result.next > wanted.offset:
            self._held[wanted] = result
            self._held_bytes += result.size
            while self._held_bytes > HELD_BYTES_MAX:
                self._held_bytes -= self._held.popitem(last=False)[1].size
        # Call it also without a result: then the broker filters by itself.
        self._arrived([wanted.queue])

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0
