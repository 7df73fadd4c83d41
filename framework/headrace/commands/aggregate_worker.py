"""
The worker of one aggregate: takes its commands from delivery to answer, in their order.

Used by `processor`, which brings deliveries. Drives the aggregate's mailbox: loads the aggregate, lets it
decide, commits, publishes and answers.

A command's decision is accepted into the live aggregate before it is durable, and the next command
is decided on top of it. Answers leave in order from the front of the mailbox:

    Recorded        the committer says what became of the stream (its table `NEXT_STEP`)
    Repeated        the store held its outcome before: answered with that, its handler does not run
    DecisionFailed  the same, if the store holds anything; else parked as a letter
    Denied          the same, if the store holds anything; else answered with that
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import TaskSet
from headrace._runtime.tracebacks import traceback_of
from headrace._runtime.work import CommandWork
from headrace.aggregates.cache import AggregateCache, LiveAggregate
from headrace.aggregates.known_commands import KnownCommands
from headrace.aggregates.repository import Repository
from headrace.aggregates.snapshots import Snapshots
from headrace.commands.answer import Answering, result_of
from headrace.commands.decision import (
    CommandDecider,
    Crashed,
    Decision,
    DecisionFailed,
    Denied,
    Recorded,
    Repeated,
)
from headrace.commands.holds import Hold, Holds
from headrace.commands.mailbox import Mailbox
from headrace.commands.parked import Parking
from headrace.commands.submission import Submission
from headrace.domain.aggregate import Aggregate
from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream, HeadraceError, SubjectKeysAway
from headrace.events.append_batch import QueuedStream
from headrace.events.committer import Committer, NextStep, Refused
from headrace.events.publisher import Publisher
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.transports.base import Place

__all__ = ["AggregateWorker", "WorkerParts"]

log = get_logger(__name__)

# Commands run in a row before other aggregates get their turn on the event loop: a millisecond or two
# if handlers do not wait. Their decisions are one transaction; 32 cost 12 % more CPU on SQLite, see
# benchmarks/commands.
RUNS_PER_TURN = 64

# Commands whose outcomes one query looks up: many make the query cheap for each. But all streams that it
# finds must fit into memory; a stream usually has a kilobyte, and may have megabytes.
SOUGHT_TOGETHER_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What all workers of a processor share.

    Attributes:
        workers: all that have commands, by aggregate; one that has none left takes itself out.
        shared: whether another process may have commands of the same aggregate: they come through
            several topics, whose queues change hands one by one.
    """

    decider: CommandDecider
    known: KnownCommands
    holds: Holds
    cache: AggregateCache
    repository: Repository
    snapshots: Snapshots
    committer: Committer
    publisher: Publisher
    answering: Answering
    parking: Parking
    serializer: Serializer
    tasks: TaskSet
    backoff: Backoff
    settings: Settings
    workers: dict[str, "AggregateWorker"]
    work: CommandWork = field(default_factory=CommandWork)
    shared: bool = False


class _StaleRun(Exception):
    """Ends a run whose decision no longer counts; no error."""


class AggregateWorker:
    """The commands of one aggregate; lives as long as there are any.

    Args:
        aggregate_id: whose commands.
        parts: what it works with.
    """

    def __init__(self, aggregate_id: str, parts: WorkerParts) -> None:
        self._aggregate_id = aggregate_id
        self._parts = parts
        self._mailbox: Mailbox[Submission] = Mailbox()
        # The accepted state, which may be ahead of the store; None: load it when needed.
        self._live: LiveAggregate | None = parts.cache.get(aggregate_id)
        self._trusts_live = True
        self._current: Submission | None = None
        # Whether the store has refused something: then ids are no sign that commands are new.
        self._seeks_all = False
        self._working = False
        # How many conflicts in a row ask for a pause before the next run.
        self._pauses = 0
        self._progress: asyncio.Future[None] | None = None

    def offer(self, submission: Submission) -> None:
        """Takes a command in, at the end; all deliveries of one command get the same answer."""
        earlier = self._mailbox.offer(submission)
        if earlier is not None:
            earlier.deliveries.extend(submission.deliveries)
            return
        if not self._working:
            self._start_work()

    def distrust(self) -> None:
        """Keeps the live aggregate out of the cache: another process may have changed it."""
        self._trusts_live = False

    # What a run of a handler needs to know of the aggregate.

    @property
    def accepted(self) -> Aggregate | None:
        """The aggregate in its accepted state, if it is in memory."""
        return None if self._live is None else self._live.aggregate

    async def load(self, aggregate_type: type[Aggregate]) -> Aggregate | None:
        """Returns the aggregate in its accepted state, or None when it has no events."""
        if self._live is None:
            await self._until_all_decided_is_durable()
            # No rewind can come from here on: there is nothing left that the store could refuse.
            self._live = await self._parts.repository.load(aggregate_type, self._aggregate_id)
        return self.accepted

    async def is_taken(self) -> bool:
        """Whether the id of a new aggregate turns out to have events.

        The store is not asked at first: its constraint on the first version decides, and a conflict
        leads back here.
        """
        if self._current is None or not self._current.conflicts:
            return False
        return await self._parts.repository.exists(self._aggregate_id)

    async def _until_all_decided_is_durable(self) -> None:
        """Waits, because what was accepted and is not stored yet cannot be read back."""
        while self._mailbox.counts and self._mailbox.decided:
            self._progress = asyncio.get_running_loop().create_future()
            await self._progress
        if not self._mailbox.counts:
            raise _StaleRun

    # Running.

    def _start_work(self) -> None:
        self._working = True
        self._parts.tasks.start("worker", self._work())

    async def _work(self) -> None:
        runs = 0
        while True:
            if self._pauses:
                pauses, self._pauses = self._pauses, 0
                await self._parts.backoff.pause(pauses)
            submission = self._mailbox.next
            if submission is None:
                break
            if self._is_to_be_sought(submission):
                await self._seek()
                continue
            self._current = self._mailbox.take()
            decision = await self._decide(submission)
            self._current = None
            if self._mailbox.ran():
                self._accept(submission, decision)
                if isinstance(decision, DecisionFailed) and self._parts.holds.enabled:
                    # Only then is it known whether the next ones stand behind a parked command.
                    await self._until_all_decided_is_settled()
            runs += 1
            if runs % RUNS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._working = False
        self._leave_if_empty()

    def _is_to_be_sought(self, submission: Submission) -> bool:
        return not submission.sought and (
            self._seeks_all
            or self._parts.known.may_be_stored(self._aggregate_id, submission.command_id)
        )

    async def _seek(self) -> None:
        """Looks for the outcomes of commands that wait, as many as go into one query."""
        unknown = filter(self._is_to_be_sought, self._mailbox.waiting())
        sought = list(islice(unknown, SOUGHT_TOGETHER_MAX))
        outcomes = await self._parts.repository.find_commands(
            self._aggregate_id, [each.command_id for each in sought]
        )
        for submission in sought:
            submission.sought = True
            found = outcomes.get(submission.command_id)
            if isinstance(found, DamagedStream):
                submission.failure = _unreadable(found)
            elif found is not None:
                body = await self._encoded(found)
                if isinstance(body, DecisionFailed):
                    submission.failure = body
                else:
                    submission.body, submission.stored = body, found

    async def _until_all_decided_is_settled(self) -> None:
        while self._mailbox.decided:
            self._progress = asyncio.get_running_loop().create_future()
            await self._progress

    async def _decide(self, submission: Submission) -> Decision:
        if submission.stored is not None:
            return Repeated()
        # Before it could be held behind others: what may not be sent is never parked.
        denied = self._parts.decider.denial(submission.envelope)
        if denied is not None:
            return denied
        holds = self._parts.holds
        hold = holds.find(self._aggregate_id) if holds.enabled else None
        if (
            hold is not None
            and not submission.is_letter
            and (
                not self._parts.shared or await self._parts.parking.holds_still(self._aggregate_id)
            )
        ):
            return self._held(submission, hold)
        outages = 0
        while submission.failure is None:
            remembered = self._live is not None
            decision = await self._parts.decider.decide(submission.envelope, self)
            outdated = remembered and self._parts.shared and await self._is_outdated(decision)
            if not self._mailbox.counts:
                return decision
            if outdated:
                # The next run loads what there is, so this is no loop.
                self._forget()
                continue
            if not isinstance(decision, Crashed):
                return decision
            # What the handler did to the aggregate before it broke off is no decision.
            self._forget()
            if isinstance(decision.error, SubjectKeysAway):
                # No fault of the command: it waits, as for the event store.
                outages += 1
                log.warning(
                    "will decide again",
                    command_id=submission.command_id,
                    attempt=outages,
                    error=repr(decision.error),
                )
                await self._parts.backoff.pause(outages)
                continue
            submission.crashes += 1
            if submission.crashes > self._parts.settings.error_retries_max:
                return DecisionFailed(
                    error=type(decision.error).__name__,
                    sentence=str(decision.error),
                    trace=traceback_of(decision.error),
                )
            await self._parts.backoff.pause(submission.crashes)
        return submission.failure

    async def _is_outdated(self, decision: Decision) -> bool:
        """Whether a decision that no version protects was made on a state that is out of date."""
        changes = isinstance(decision, Recorded) and decision.aggregate is not None
        if changes or isinstance(decision, Repeated) or self._live is None:
            return False
        return await self._parts.repository.has_newer(
            self._aggregate_id, self._live.aggregate.version
        )

    def _held(self, submission: Submission, hold: Hold) -> DecisionFailed:
        if submission.command_id == hold.command_id:
            return DecisionFailed(error=hold.error, sentence=hold.sentence, held=True)
        return DecisionFailed(
            error="Held",
            sentence=f"command {hold.command_id} of aggregate {self._aggregate_id!r} is parked, and"
            " its later commands are held behind it; this one runs once that one is retried or"
            " skipped; ask for its result with the same id",
            held=True,
        )

    def _accept(self, submission: Submission, decision: Decision) -> None:
        submission.decided(decision)
        if isinstance(decision, Recorded):
            aggregate = decision.aggregate
            if aggregate is not None:
                aggregate.accept()
                if self._live is None or self._live.aggregate is not aggregate:
                    self._live = LiveAggregate(aggregate)
                self._live.events_unsaved += len(decision.stream.events)
                submission.snapshot = self._parts.snapshots.take(self._live)
            if decision.dirty:
                self._forget()
            self._parts.committer.offer(
                QueuedStream(
                    stream=decision.stream,
                    generation=self._mailbox.generation,
                    settled=partial(self._settled, submission),
                )
            )
            # Nothing can be settled before the store has answered.
            return
        if isinstance(decision, DecisionFailed):
            self._forget()
        self._advance()

    def _forget(self) -> None:
        """Throws the aggregate in memory away; the next command loads it from the store."""
        self._live = None
        self._parts.cache.evict(self._aggregate_id)

    # Settling, in order.

    def _settled(
        self, submission: Submission, queued: QueuedStream, step: NextStep | Refused
    ) -> None:
        if queued.generation != self._mailbox.generation:
            # Part of the same append as a stream that has just been refused.
            return
        if step is NextStep.PUBLISH:
            submission.durable = True
            self._advance()
        elif isinstance(step, Refused):
            submission.failure = DecisionFailed(
                error="StoreRefused", sentence=f"the event store refuses the events: {step.error}"
            )
            self._rewind(submission)
        else:
            # Memory did not know all of the store; one look shows all that it holds of these.
            self._seeks_all = True
            for each in self._mailbox:
                each.sought = each.stored is not None
            self._run_again(submission)

    def _run_again(self, submission: Submission) -> None:
        submission.conflicts += 1
        self._parts.work.conflicts += 1
        if submission.conflicts > self._parts.settings.conflict_retries_max:
            submission.failure = DecisionFailed(
                error="Busy",
                sentence=f"aggregate {self._aggregate_id!r} was changed by others during each of"
                f" {submission.conflicts} runs; send the command again",
                holds=False,
            )
        else:
            # The first rerun meets a fresh state and usually succeeds: only later ones wait.
            self._pauses = submission.conflicts - 1
        self._rewind(submission)

    def _rewind(self, submission: Submission) -> None:
        generation = self._mailbox.rewind(submission)
        self._parts.committer.drop(self._aggregate_id, before_generation=generation)
        self._forget()
        if self._progress is not None:
            self._wake()
        if not self._working:
            self._start_work()

    def _advance(self) -> None:
        """Settles from the front what can be settled."""
        while (submission := self._mailbox.oldest) is not None:
            decision = submission.decision
            if isinstance(decision, Repeated) and submission.stored is not None:
                self._mailbox.settle()
                self._publish(submission, submission.stored, submission.body)
            elif not isinstance(decision, Recorded):
                if not submission.recalling:
                    submission.recalling = True
                    self._parts.tasks.start("recall", self._recall(submission))
                break
            elif not submission.durable:
                break
            else:
                self._mailbox.settle()
                self._parts.known.add(self._aggregate_id, submission.command_id)
                if submission.snapshot is not None:
                    self._parts.snapshots.offer(submission.snapshot)
                self._publish(submission, decision.stream, decision.body)
        if self._progress is not None:
            self._wake()
        if not self._working:
            self._leave_if_empty()

    async def _recall(self, submission: Submission) -> None:
        """Settles the oldest command by what the store holds of it."""
        decision = submission.decision
        command_id = submission.command_id
        found = await self._parts.repository.find_commands(self._aggregate_id, [command_id])
        stored = found.get(command_id)
        body = await self._encoded(stored) if isinstance(stored, EventStream) else None
        if isinstance(stored, DamagedStream):
            decision = _unreadable(stored)
        elif isinstance(body, DecisionFailed):
            decision = body
        if isinstance(stored, EventStream) and isinstance(body, bytes):
            self._mailbox.settle()
            self._publish(submission, stored, body)
        elif isinstance(decision, DecisionFailed):
            if decision.held and self._parts.holds.find(self._aggregate_id) is None:
                # What it was held behind was done with meanwhile.
                self._rewind(submission)
                return
            self._mailbox.settle()
            self._parts.parking.park(
                submission.deliveries,
                decision,
                aggregate_id=self._aggregate_id,
                command_id=submission.command_id,
            )
        elif isinstance(decision, Denied):
            self._mailbox.settle()
            log.warning(
                "audit",
                user=str(submission.envelope.principal),
                action=f"send {submission.envelope.command.message_name}",
                aggregate_id=self._aggregate_id,
                command_id=command_id,
                outcome="refused",
            )
            self._parts.answering.answer(submission.deliveries, decision.result)
        self._advance()

    async def _encoded(self, stored: EventStream) -> bytes | DecisionFailed:
        """Encodes what the store held; waits while the keys of personal fields are away."""
        serializer = self._parts.serializer

        async def encode() -> bytes:
            if serializer.cipher is not None:
                await serializer.cipher.make_ahead((*stored.events, *stored.messages))
            return serializer.encode_stream(stored)

        try:
            return await self._parts.backoff.persist(encode, what="encode a stored stream")
        except HeadraceError as error:  # a key that cannot be read ends this command alone
            return _unreadable(error)

    def _publish(self, submission: Submission, stream: EventStream, body: bytes) -> None:
        answering, deliveries = self._parts.answering, submission.deliveries

        def published(place: Place | None) -> None:
            answering.answer(deliveries, result_of(stream, place), stream.result)

        if stream.unchanged:
            published(None)
        else:
            self._parts.publisher.offer(stream, body, published)

    def _wake(self) -> None:
        """Lets the worker look again at what it waits for."""
        progress, self._progress = self._progress, None
        if progress is not None and not progress.done():
            progress.set_result(None)

    def _leave_if_empty(self) -> None:
        if self._mailbox:
            return
        if self._live is not None and self._trusts_live:
            self._parts.cache.put(self._live)
        self._parts.workers.pop(self._aggregate_id, None)


def _unreadable(error: HeadraceError) -> DecisionFailed:
    return DecisionFailed(error=type(error).__name__, sentence=str(error))
