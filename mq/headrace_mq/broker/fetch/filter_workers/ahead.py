"""
What sifting processes have found for readers that are far behind, and what they are still at.

    ask ─▶ a job ─▶ held until its reader comes for it ─▶ the next one is asked for at once

So a process works while the reader takes what it found before. Used by `scan`, whose fetches ask and take;
uses `sifters`. Only offsets that were not written to since are asked for: what was found once stays true.
"""

from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from headrace_mq.broker.fetch.filter_workers.jobs import Job, Sifted
from headrace_mq.broker.fetch.filter_workers.sifters import Sifters
from headrace_mq.message import QueueRef
from headrace_mq.store.message_store import MessageStore

__all__ = ["Ahead", "WantedBacklog"]

# One job: some milliseconds' work, many times what passing it on costs.
JOB_BYTES = 4 << 20
# Small batches are more work: for so many some tens of milliseconds.
JOB_BATCHES_MAX = 1_024
# Less is looked through sooner than passed on.
JOB_BYTES_MIN = 512 << 10
JOB_BATCHES_MIN = 64
# What ends a job: an answer of few messages fits into one fetch.
ANSWER_BYTES = 256 << 10
# Jobs that wait for a process, some 30 ms each; who comes then is served as if there were none.
WAITING_MAX = 32
# Found and not taken yet: by readers that went away.
HELD_BYTES_MAX = 16 << 20
# Of more than one byte in so many bytes that are looked at it is quicker to pass them on here.
RARE_SHARE = 4


class WantedBacklog(NamedTuple):
    """What a reader wants of a queue from an offset on."""

    queue: QueueRef
    offset: int
    condition: str
    picks: bool


class Ahead:
    """All jobs of a broker.

    Args:
        store: where the queues are.
        sifters: who does the jobs.
        arrived: called with queues of which something was found.
    """

    def __init__(
        self,
        store: MessageStore,
        sifters: Sifters,
        arrived: Callable[[Collection[QueueRef]], None],
    ) -> None:
        self._store = store
        self._sifters = sifters
        self._arrived = arrived
        self._coming: set[WantedBacklog] = set()
        self._held: OrderedDict[WantedBacklog, Sifted] = OrderedDict()
        self._held_bytes = 0
        sifters.on_rest = self._forget

    def is_coming(self, wanted: WantedBacklog) -> bool:
        """Whether a process is at it: `arrived` will be called."""
        return wanted in self._coming

    def take(self, wanted: WantedBacklog) -> Sifted | None:
        """What was found, if anybody looked; it is not held any longer."""
        sifted = self._held.pop(wanted, None)
        if sifted is not None:
            self._held_bytes -= sifted.size
        return sifted

    def go_on(self, wanted: WantedBacklog, sifted: Sifted) -> None:
        """Has looked through what stands behind what its reader takes now."""
        if sifted.size * RARE_SHARE <= sifted.looked_bytes:
            self.ask(wanted._replace(offset=sifted.next))

    def ask(self, wanted: WantedBacklog) -> bool:
        """Has a backlog looked through; False where there is too little of it, or no process to do it."""
        if wanted in self._coming or wanted in self._held:
            return True
        if self._sifters.waiting >= WAITING_MAX or not self._sifters.at_hand:
            return False
        queue = wanted.queue
        stretch = self._store.stretch_from(queue, wanted.offset, JOB_BYTES, JOB_BATCHES_MAX)
        if stretch is None:
            return False
        entries = stretch.entries
        size = sum(entry.length for entry in entries)
        if size < JOB_BYTES_MIN and len(entries) < JOB_BATCHES_MIN:
            return False
        if not self._sifters.ready():
            return False
        job = Job(
            wanted.condition, wanted.picks, *queue, str(stretch.path), stretch.shift, entries,
            ANSWER_BYTES,
        )  # fmt: skip
        self._coming.add(wanted)
        self._sifters.submit(job).add_done_callback(partial(self._done, wanted))
        return True

    def _done(self, wanted: WantedBacklog, answer: "Future[Sifted | None]") -> None:
        self._coming.discard(wanted)
        sifted = answer.result()
        if sifted is not None and sifted.next > wanted.offset:
            self._held[wanted] = sifted
            self._held_bytes += sifted.size
            while self._held_bytes > HELD_BYTES_MAX:
                self._held_bytes -= self._held.popitem(last=False)[1].size
        # Also where nothing came of it: then the broker looks for itself.
        self._arrived([wanted.queue])

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0
