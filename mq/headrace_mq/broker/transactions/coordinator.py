"""
Carries out the decisions on transactions, each once; why a crash changes nothing.

A prepared bundle is a record of the journal, queue 0 of `%TRANSACTION%` in the transient log, and is
acknowledged like any other message: after the sync. Decisions are gathered while the ones before are
under way, and are

    1  append `decided`: what was decided, and as which batches with which sequences it goes on
    2  append these batches, under a producer id of the transactions' own
    3  wait until all of it is durable; answer; only then begin with the next decisions

Where a batch goes to the other log, 1 is durable before 2 begins; within one log a crash keeps what
stands first, so a batch is never there without its `decided`. A start reads the journal. All but the
last `decided` are carried out, because of 3. The last one is appended again, batch by batch, with the
same sequences: the store drops what it has, and takes what it has not. `done` closes the last one when
nothing follows. So what is committed is appended, and once; what is not never leaves the journal.

A transaction that stays undecided is asked for (`checkers`), and after the last question kept aside.
The state is memory, kept in `transactions.json` now and then so that a start reads only the journal
behind it. Before a segment of the journal is deleted, what is undecided in it is kept aside too.

Sits between: `handlers`, `topics.deletion` and `server`, and the store. One task works; all belongs to the
event loop's thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.schedule.delivery import NotYet, SchedulingStore
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions.checks import Answer, TransactionChecks
from headrace_mq.broker.transactions.delivery import DEAD_TRANSACTIONS_QUEUE, Decisions
from headrace_mq.broker.transactions.drafts import Drafts
from headrace_mq.broker.transactions.journal import (
    BundleDecision,
    Decided,
    DecidedPart,
    Done,
    check_bundle,
)
from headrace_mq.broker.transactions.log import LOG, TransactionLog
from headrace_mq.broker.transactions.undecided import KeptTransactions, Transactions
from headrace_mq.errors import (
    BrokerError,
    BrokerStopping,
    CorruptBatch,
    DataCorrupt,
    InvalidArgument,
    StoreFull,
    StoreReadOnly,
    TransactionsFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, decode_columns
from headrace_mq.protocol.transactions import (
    TRANSACTION_QUEUE,
    TRANSACTION_TOPIC,
    Bundle,
    BundleEnds,
    EndedOtherwise,
    EndTransactions,
    TakeChecks,
    TransactionsDescription,
    TransactionsEnded,
    UndecidedTransaction,
)
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.retention.retention import SegmentFacts

__all__ = ["TransactionCoordinator"]

S = TypeVar("S")

_log = get_logger(__name__)

# Undecided transactions that a description names.
DESCRIBED_MAX = 100
# A clock that was set, and a producer that fell silent, are noticed within this time.
LOOK_MS_MAX = 1_000
# Bundles that come from the disk are announced; this is for an announcement that was missed.
DISK_MS_MAX = 100
# Pause before a disk that was full is tried again.
PAUSE_MS = 1_000


class _Asked(NamedTuple):
    """A request for decisions, and who waits for its answer."""

    ends: list[BundleEnds]
    answer: asyncio.Future[TransactionsEnded]


_Answers = list[tuple[_Asked, list[EndedOtherwise]]]


class TransactionCoordinator(Generic[S]):
    """The transactions of one broker; `S` are the connections of those who are asked.

    Args:
        store: holds the journal and takes what is committed.
        topics: where that goes.
        clock: says what is due, whatever was done to the machine's.
        file: keeps the state.
        epoch: of the broker.
        settings: when transactions are checked, how often, and how many may wait.
        check_room: raises StoreFull while the disk is too full for new messages.
    """

    def __init__(
        self,
        store: SchedulingStore,
        topics: Topics,
        *,
        clock: SteadyClock,
        file: MetadataFile[KeptTransactions],
        epoch: int,
        settings: BrokerSettings,
        check_room: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._settings = settings
        self._check_room = check_room
        self._decisions = Decisions(store, topics, epoch=epoch)
        self._state = Transactions(settings.transaction_timeout_ms)
        self._log = TransactionLog(store, file, clock=clock, state=self._state)
        self._checks = TransactionChecks[S](self._state, settings, bundle=self._bundle_now)
        self._asked: deque[_Asked] = deque()
        self._on_its_way = False
        # The decisions to be carried out before there are others, and the note that the last are.
        self._current: Decided | None = None
        self._closing: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Reads the kept state and the journal behind it; blocks until that is done.

        Raises:
            FormatTooNew: a newer version wrote the file.
        """
        self._state.ahead_ms = self._clock.ahead_ms
        self._log.load()
        self._current = self._state.unfinished

    def start(self) -> None:
        """Begins to work, first of all on what a crash interrupted."""
        self._task = asyncio.create_task(self._run(), name="transactions")

    async def aclose(self) -> None:
        """Finishes the decisions under way and keeps the state."""
        self._stopping = True
        self._news.set()
        if self._task is not None:
            await self._task
            await self._log.keep(always=True)

    def check(self, header: BatchHeader, batch: memoryview) -> None:
        """Raises unless a client may append this batch to the journal.

        Raises:
            InvalidArgument: it holds no transactions; the sentence says why.
            TopicNotFound, QueueNotFound, QueueFrozen: a topic that they are for takes nothing.
            TransactionsFull: as many are undecided as may be.
            CorruptBatch: the batch cannot be read.
        """
        if header.queue != TRANSACTION_QUEUE:
            raise InvalidArgument(f"{TRANSACTION_TOPIC} has one queue, with number 0")
        try:
            columns = decode_columns(batch, header)
        except DataCorrupt as error:
            raise CorruptBatch(f"the transactions cannot be read: {error}") from error
        if columns.headers:
            raise InvalidArgument(f"a message to {TRANSACTION_TOPIC} has no headers")
        bundles = [check_bundle(body) for body in columns.bodies]
        for queue in {queue for _, queues in bundles for queue in queues}:
            self._decisions.check_takes(queue)
        limit = self._settings.transactions_max
        if self._state.undecided + sum(count for count, _ in bundles) > limit:
            raise TransactionsFull(
                f"{self._state.undecided} transactions are undecided, and at most {limit} may be;"
                " try again later, or raise transactions_max"
            )

    def journal_grew(self) -> None:
        """Takes over the new records of the journal, or looks again at what came from the disk.

        The store calls it when either can be read.
        """
        self._state.ahead_ms = self._clock.ahead_ms
        self._log.follow()
        self._news.set()

    def look(self) -> None:
        """Looks now at what is due, for whoever knows that the clock was set."""
        self._news.set()

    def end(self, request: EndTransactions) -> "asyncio.Future[TransactionsEnded]":
        """Decides transactions; the answer is there when that and what it commits is durable.

        Raises:
            InvalidArgument: an entry names no transaction, or one of another group.
            BrokerStopping, StoreReadOnly: nothing is decided any more.
        """
        if self._stopping:
            raise BrokerStopping("the broker is stopping; decide on the transactions again soon")
        if self._task is None or self._task.done():
            raise StoreReadOnly("the broker decides nothing any more; see its log and restart it")
        for end in request.ends:
            self._check_end(request.group, end)
        asked = _Asked(request.ends, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        self._news.set()
        return asked.answer

    def take_checks(self, session: S, request: TakeChecks, answer: Answer) -> None:
        """Calls `answer` once, when there are transactions to be asked for, or with none."""
        self._checks.wait(session, request, answer)
        self._news.set()

    def stop_waiting(self, session: S, answer: Answer) -> None:
        """Answers who has waited for checks long enough."""
        self._checks.stop_waiting(session, answer)

    def forget(self, session: S) -> None:
        """A connection ended: nobody there is asked any more."""
        self._checks.forget(session)

    def describe(self) -> TransactionsDescription:
        """How many transactions are undecided, and the oldest of them."""
        oldest: list[UndecidedTransaction] = []
        for pending in self._state:
            bundle = self._decisions.bundle(pending.number, wait=True)
            for place in pending.undecided if bundle is not None else ():
                assert bundle is not None
                oldest.append(
                    UndecidedTransaction(
                        bundle.ids[place], pending.group, pending.begun_at_ms, pending.checks
                    )
                )
            if len(oldest) >= DESCRIBED_MAX:
                break
        return TransactionsDescription(self._state.undecided, oldest[:DESCRIBED_MAX])

    def spare(self, segments: Sequence[SegmentFacts], before: int) -> int:
        """Lowers the log position before which segments go to what is still needed of the journal.

        What is undecided there is kept aside soon, so that the next pass can delete more.
        """
        ends = [(segment, segment.next_offsets.get(TRANSACTION_QUEUE, 0)) for segment in segments]
        wanted = max((end for segment, end in ends if segment.end <= before), default=0)
        if not wanted:
            return before
        lowest = self._state.lowest_number()
        needed = self._log.kept_to if lowest is None else min(lowest, self._log.kept_to)
        if wanted <= needed:
            return before
        self._checks.give_up_below(wanted)
        if self._current is None:
            # What was decided last is needed no more.
            with suppress(StoreFull, StoreReadOnly):
                self._close()
        self._log.keep_now = True
        self._news.set()
        return next(segment.base for segment, end in ends if end > needed)

    async def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    await self._turn()
                except StoreReadOnly as error:
                    _log.error("no transaction is decided until a restart", reason=str(error))
                    return
                except StoreFull as error:
                    _log.warning("transactions wait for room on the disk", reason=str(error))
                    await self._pause()
                except Exception:  # noqa: BLE001 - the next turn may succeed; the broker serves on
                    _log.exception("the transactions failed and go on in a moment")
                    await self._pause()
        finally:
            for asked in self._asked:
                _fail(asked, BrokerStopping("nothing was decided; decide again soon"))
            self._asked.clear()

    async def _turn(self) -> None:
        """Decides once, asks who is to be asked, and waits if there was nothing to decide."""
        if self._current is not None:
            await self._finish(self._current)
        self._news.clear()
        self._on_its_way = False
        now_ms = self._clock.steady_ms()
        if events := self._checks.step(now_ms):
            # The next start may ask once more than it should; that does no harm.
            with suppress(StoreFull):
                self._log.append(*events)
        decided = await self._decide()
        self._decisions.forget_bundles()
        await self._log.keep()
        if decided:
            return
        check_ms = self._state.next_check_ms()
        wait_ms = LOOK_MS_MAX if check_ms is None else min(LOOK_MS_MAX, check_ms - now_ms)
        if self._on_its_way or self._checks.on_its_way:
            wait_ms = min(wait_ms, DISK_MS_MAX)
        if not await self._news_within(max(0, wait_ms)):
            self._close()

    def _check_end(self, group: str, end: BundleEnds) -> None:
        pending = self._state.find(end.number)
        outcomes = self._state.outcomes(end.number)
        if not 0 <= end.number < self._state.read_to or (
            pending is not None and pending.group != group
        ):
            raise InvalidArgument(f"group {group!r} prepared no transactions under {end.number}")
        places = [*end.commit, *end.roll_back]
        if places and (min(places) < 0 or (outcomes and max(places) >= len(outcomes))):
            raise InvalidArgument(f"bundle {end.number} has no such transactions")

    async def _decide(self) -> bool:
        """Carries out as many decisions as go at a time; whether there were any."""
        drafts, answers = Drafts(self._state), _Answers()
        try:
            self._draft_asked(drafts, answers)
            self._draft_given_up(drafts)
            decisions = drafts.decisions()
            if decisions:
                self._check_room()
                self._current = self._decisions.number(decisions)
                await self._finish(self._current)
        except BaseException as error:
            for asked, _ in answers:
                _fail(asked, error)
            raise
        for asked, otherwise in answers:
            if not asked.answer.done():
                asked.answer.set_result(TransactionsEnded(otherwise))
        return bool(answers or decisions)

    def _draft_asked(self, drafts: Drafts, answers: _Answers) -> None:
        waiting: list[_Asked] = []
        while self._asked and not self._decisions.is_full:
            asked = self._asked.popleft()
            # All of them, so that the disk is asked for all at the same time.
            if all([self._is_there(end.number) for end in asked.ends]):  # noqa: C419 - each one is to be asked for
                answers.append((asked, drafts.decide(asked.ends)))
            else:
                waiting.append(asked)
        self._asked.extendleft(reversed(waiting))

    def _draft_given_up(self, drafts: Drafts) -> None:
        given_up = self._checks.given_up
        for number in list(given_up):
            pending = self._state.find(number)
            if pending is None:
                del given_up[number]
            elif not self._decisions.is_full and self._is_there(number):
                self._decisions.make_dead_queue()
                count = drafts.keep_aside(pending)
                del given_up[number]
                _log.error(
                    "transactions stay undecided after their last check; moved their messages aside",
                    group=pending.group, transactions=count, checks=pending.checks,
                    topic=DEAD_TRANSACTIONS_QUEUE.topic,
                )  # fmt: skip

    def _bundle_now(self, number: int) -> Bundle | None:
        return self._decisions.bundle(number, wait=False)

    def _is_there(self, number: int) -> bool:
        """Whether a bundle was read; the disk is asked for one that was not."""
        try:
            if self._state.find(number) is not None:
                self._bundle_now(number)
        except NotYet:
            self._on_its_way = True
            return False
        return True

    async def _finish(self, decided: Decided) -> None:
        """Appends what follows from decisions until all of it is durable.

        Raises:
            StoreReadOnly: the disk failed; the next start finishes it.
        """
        while True:
            try:
                await self._attempt(decided)
            except StoreFull as error:
                _log.warning("a commit waits for room on the disk", reason=str(error))
                if self._stopping:
                    raise
                await self._pause()
            else:
                self._current = self._closing = None
                return

    async def _attempt(self, decided: Decided) -> None:
        if self._state.unfinished != decided:
            self._log.append(decided)
            if any(self._retention(part) != LOG for part in decided.parts):
                await self._store.durable()
        decisions = {decision.number: decision for decision in decided.decisions}
        for part in decided.parts:
            self._append_part(decisions[part.number], part, decided.epoch)
        await self._store.durable()

    def _append_part(self, decision: BundleDecision, part: DecidedPart, epoch: int) -> None:
        batch = self._decisions.batch_of(decision, part, epoch)
        if batch is None:
            return
        queue = QueueRef(part.topic, part.queue_id)
        try:
            # Also where it is frozen by now: the message was accepted before.
            self._topics.check(queue)
            self._store.append(batch, retention=self._retention(part))
        except (StoreFull, StoreReadOnly):
            raise
        except BrokerError as error:
            _log.error("a queue refuses what is committed", queue=queue, reason=str(error))
            dead = self._decisions.dead_batch_of(decision, part)
            if dead is not None:
                self._store.append(dead, retention="forever")

    def _retention(self, part: DecidedPart) -> str:
        found = self._topics.find(part.topic)
        return found.retention if found is not None else LOG

    def _close(self) -> None:
        """Notes that the last decisions are done; whether that becomes durable matters little."""
        if self._state.unfinished is None or self._closing is not None:
            return
        self._log.append(Done())
        self._closing = self._store.durable()
        self._closing.add_done_callback(self._closed)

    def _closed(self, outcome: asyncio.Future[None]) -> None:
        if outcome.exception() is not None and self._closing is outcome:
            self._closing = None

    async def _pause(self) -> None:
        """Waits a moment, or for news; what was news before the failure is none."""
        if self._stopping:
            return
        self._news.clear()
        await self._news_within(PAUSE_MS)

    async def _news_within(self, wait_ms: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1_000):
                return await self._news.wait()
        return False


def _fail(asked: _Asked, error: BaseException) -> None:
    if not asked.answer.done():
        failure = error if isinstance(error, Exception) else BrokerStopping(str(error))
        asked.answer.set_exception(failure)
