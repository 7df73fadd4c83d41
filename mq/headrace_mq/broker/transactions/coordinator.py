"""
Carries out the decisions on transactions, each once, even after a crash.

A prepared bundle is a record of the journal, queue 0 of `%TRANSACTION%` in the transient log, and is acknowledged like any other message: after the sync. The coordinator collects decisions while it carries out
earlier ones. A `decided` record holds the decisions and the batches that they lead to. `broker.journal.worker`
explains why each is carried out once; the answer follows when everything is durable. So committed messages are
appended once, and all others never leave the journal.

A transaction that stays undecided is checked (`checks`), and after the last check its messages become dead
letters. Before a segment of the journal is deleted, its undecided transactions become dead letters too.

Used by `handlers`, `topics.deletion` and `server`; uses the journal's worker.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.journal.batches import JournalStore, NotYet, sent_columns
from headrace_mq.broker.journal.log import JournalFormat, JournalLog
from headrace_mq.broker.journal.worker import (
    DISK_MS_MAX,
    LOOK_MS_MAX,
    JournalWorker,
    OrderBatch,
)
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions.checks import Answer, TransactionChecks
from headrace_mq.broker.transactions.delivery import DEAD_TRANSACTIONS_QUEUE, Decisions
from headrace_mq.broker.transactions.drafts import Drafts
from headrace_mq.broker.transactions.journal import (
    Decided,
    Done,
    check_bundle,
    own_record,
    read_event,
)
from headrace_mq.broker.transactions.undecided import KeptTransactions, Transactions
from headrace_mq.errors import (
    BrokerStopping,
    InvalidArgument,
    StoreFull,
    StoreReadOnly,
    TransactionsFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
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

__all__ = ["TransactionCoordinator"]

S = TypeVar("S")

_log = get_logger(__name__)

# Undecided transactions listed in a description.
DESCRIBED_MAX = 100
# Journal bytes between two writes of the state: a start after a crash reads this much, about a second.
KEEP_BYTES = 256 << 20


class _Asked(NamedTuple):
    """A request for decisions, and the future of its answer."""

    ends: list[BundleEnds]
    answer: asyncio.Future[TransactionsEnded]


_Answers = list[tuple[_Asked, list[EndedOtherwise]]]


class TransactionCoordinator(JournalWorker[Decided], Generic[S]):
    """The transactions of one broker; `S` is the type of a producer's connection.

    Args:
        store: holds the journal, and gets the committed messages.
        topics: the targets of the messages.
        clock: a steady clock, which decides when checks are due.
        file: keeps the state.
        epoch: of the broker.
        settings: when transactions are checked, how often, and how many may wait.
        check_room: raises StoreFull while the disk is too full for new messages.
    """

    _done = Done()
    _dead_retention = "forever"

    def __init__(
        self,
        store: JournalStore,
        topics: Topics,
        *,
        clock: SteadyClock,
        file: MetadataFile[KeptTransactions],
        epoch: int,
        settings: BrokerSettings,
        check_room: Callable[[], None],
    ) -> None:
        self._state = Transactions(settings.transaction_timeout_ms)
        form = JournalFormat(
            "transactions", TRANSACTION_QUEUE, read_event, own_record, keep_bytes=KEEP_BYTES
        )
        log = JournalLog(store, file, clock=clock, state=self._state, form=form)
        super().__init__(store, topics, log=log, state=self._state)
        self._clock = clock
        self._settings = settings
        self._check_room = check_room
        self._decisions = Decisions(store, topics, epoch=epoch)
        self._checks = TransactionChecks[S](self._state, settings, bundle=self._bundle_now)
        self._asked: deque[_Asked] = deque()
        self._on_its_way = False

    def check(self, header: BatchHeader, batch: memoryview) -> tuple[set[str], set[str]]:
        """Returns the topics and the groups of a batch that clients append to the journal.

        Raises:
            InvalidArgument: it is not a valid bundle; the message says why.
            TopicNotFound, QueueNotFound, QueueFrozen: a target accepts no messages.
            TransactionsFull: too many transactions are undecided.
            CorruptBatch: the batch cannot be read.
        """
        columns = sent_columns(header, batch, TRANSACTION_QUEUE)
        if columns.headers:
            raise InvalidArgument(
                f"a message to {TRANSACTION_TOPIC} has no headers; leave them out"
            )
        bundles = [check_bundle(body) for body in columns.bodies]
        targets = {queue for _, queues, _ in bundles for queue in queues}
        for queue in targets:
            self._decisions.check_takes(queue)
        limit = self._settings.transactions_max
        if self._state.undecided + sum(count for count, *_ in bundles) > limit:
            raise TransactionsFull(
                f"{self._state.undecided} transactions are undecided, and at most {limit} may be;"
                " try again later, or raise transactions_max"
            )
        return {queue.topic for queue in targets}, {group for *_, group in bundles}

    def end(self, request: EndTransactions) -> "asyncio.Future[TransactionsEnded]":
        """Decides transactions; the future ends when the decisions and the committed messages are durable.

        Raises:
            InvalidArgument: an entry names no transaction, or one of another group.
            BrokerStopping, StoreReadOnly: the broker carries out no decisions any more.
        """
        if self._stopping:
            raise BrokerStopping("the broker is stopping; decide on the transactions again soon")
        if self._task is None or self._task.done():
            raise StoreReadOnly(
                "the broker carries out no decisions any more; see its log and restart it"
            )
        for end in request.ends:
            self._check_end(request.group, end)
        asked = _Asked(request.ends, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        self._news.set()
        return asked.answer

    def take_checks(self, session: S, request: TakeChecks, answer: Answer) -> None:
        """Calls `answer` once: when there are transactions to check, or with none."""
        self._checks.wait(session, request, answer)
        self._news.set()

    def stop_waiting(self, session: S, answer: Answer) -> None:
        """Answers a request for checks that has waited long enough."""
        self._checks.stop_waiting(session, answer)

    def forget(self, session: S) -> None:
        """Drops the producers of a connection that ended."""
        self._checks.forget(session)

    @property
    def undecided(self) -> int:
        """How many transactions are undecided."""
        return self._state.undecided

    @property
    def oldest_at_ms(self) -> int | None:
        """When the oldest undecided transaction was begun, by the machine's clock; None without one."""
        return next((pending.begun_at_ms for pending in self._state), None)

    def describe(self) -> TransactionsDescription:
        """Returns the number of undecided transactions, and the oldest of them."""
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

    def _follow(self) -> None:
        self._state.ahead_ms = self._clock.ahead_ms
        super()._follow()

    def _free_below(self, offset: int) -> None:
        self._checks.give_up_below(offset)
        if self._current is None:
            # The last decisions are not needed any more.
            with suppress(StoreFull, StoreReadOnly):
                self._close()

    async def _run(self) -> None:
        try:
            await super()._run()
        finally:
            for asked in self._asked:
                _fail(asked, BrokerStopping("nothing was decided; decide again soon"))
            self._asked.clear()

    async def _turn(self) -> None:
        """Carries out decisions once, sends due checks, and waits if there were no decisions."""
        self._news.clear()
        self._on_its_way = False
        now_ms = self._clock.steady_ms()
        if events := self._checks.step(now_ms):
            # The next start may send one check too many, which does no harm.
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
            raise InvalidArgument(
                f"group {group!r} prepared no transactions under number {end.number}; use the number of the PRODUCE answer"
            )
        places = [*end.commit, *end.roll_back]
        if places and (min(places) < 0 or (outcomes and max(places) >= len(outcomes))):
            raise InvalidArgument(
                f"bundle {end.number} has fewer transactions; correct their indexes"
            )

    async def _decide(self) -> bool:
        """Carries out the next decisions, up to a limit; returns whether there were any."""
        drafts, answers = Drafts(self._state), _Answers()
        try:
            self._draft_asked(drafts, answers)
            self._draft_given_up(drafts)
            decisions = drafts.decisions()
            if decisions:
                self._check_room()
                await self._finish(self._decisions.number(decisions))
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
            # Not a generator: all bundles must be requested from the disk at the same time.
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
                    "transactions stay undecided after their last check; their messages are in %DLQ%TRANSACTION",
                    group=pending.group, transactions=count, checks=pending.checks,
                    topic=DEAD_TRANSACTIONS_QUEUE.topic,
                )  # fmt: skip

    def _bundle_now(self, number: int) -> Bundle | None:
        return self._decisions.bundle(number, wait=False)

    def _is_there(self, number: int) -> bool:
        """Whether a bundle is in memory; if not, starts to read it from the disk."""
        try:
            if self._state.find(number) is not None:
                self._bundle_now(number)
        except NotYet:
            self._on_its_way = True
            return False
        return True

    def _batches(self, order: Decided) -> Iterator[OrderBatch]:
        decisions = {decision.number: decision for decision in order.decisions}
        for part in order.parts:
            decision = decisions[part.number]
            batch = self._decisions.batch_of(decision, part, order.epoch)
            dead = partial(self._decisions.dead_batch_of, decision, part)
            yield OrderBatch(QueueRef(part.topic, part.queue_id), batch, dead)


def _fail(asked: _Asked, error: BaseException) -> None:
    if not asked.answer.done():
        failure = error if isinstance(error, Exception) else BrokerStopping(str(error))
        asked.answer.set_exception(failure)
