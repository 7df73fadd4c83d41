"""
Answers the broker's questions about undecided transactions of a group, by asking the application.

Used by `TransactionalProducer`; calls the application's checker, and sends its decisions with
`decision_batcher`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from typing import NamedTuple

from headrace_mq._net.link import Link
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.transactions.decision_batcher import DecisionBatcher
from headrace_mq.errors import Closed, MessageQueueError
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.transactions import Check, ChecksAnswer, TakeChecks
from headrace_mq.settings import TransactionSettings

__all__ = ["CheckResponder", "Checker", "Decision", "Undecided"]

# Beyond the time that the broker may take, before a request for checks is repeated.
ANSWER_MS = 10_000
# Pause after a refusal, which may be for ever.
PAUSE_MS = 1_000

_log = get_logger(__name__)


class Decision(Enum):
    """What becomes of a transaction; after UNKNOWN the broker asks again later."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class Undecided(NamedTuple):
    """An undecided transaction, which a checker is asked about.

    Attributes:
        id: of the transaction.
        attempt: the number of this question, from 1.
        begun_at_ms: when the broker stored it, in ms since 1970 UTC.
    """

    id: str
    attempt: int
    begun_at_ms: int


Checker = Callable[[Undecided], Awaitable[Decision]]


class CheckResponder:
    """Asks for checks until it is cancelled.

    Args:
        link: to the broker.
        decisions: sends them.
        group: for whose transactions it answers.
        checker: the application's.
        running: the transactions that this process still works on; they are not answered here.
        settings: how many checks at a time, and how long each may take.
    """

    def __init__(
        self,
        link: Link,
        decisions: DecisionBatcher,
        *,
        group: str,
        checker: Checker,
        running: Collection[str],
        settings: TransactionSettings,
    ) -> None:
        self._link = link
        self._decisions = decisions
        self._group = group
        self._checker = checker
        self._running = running
        self._settings = settings

    async def run(self) -> None:
        """Asks, answers, and asks again."""
        wait_ms = self._settings.check_wait_ms
        request = TakeChecks(self._group, self._link.client_id, wait_ms)
        while True:
            try:
                answer = await self._link.ask(
                    ChecksAnswer, RequestCode.TAKE_CHECKS, request, timeout_ms=wait_ms + ANSWER_MS
                )
            except Closed:
                return
            except MessageQueueError as error:
                _log.warning(
                    "checks of transactions cannot be fetched; the producer tries again",
                    group=self._group,
                    reason=str(error),
                )
                await asyncio.sleep(PAUSE_MS / 1_000)
                continue
            await self._answer_all(answer.checks)

    async def _answer_all(self, checks: list[Check]) -> None:
        places = asyncio.Semaphore(self._settings.checkers_max)

        async def answer(check: Check) -> None:
            async with places:
                await self._answer(check)

        await asyncio.gather(*(answer(check) for check in checks))

    async def _answer(self, check: Check) -> None:
        if check.transaction_id in self._running:
            return
        asked = Undecided(check.transaction_id, check.attempt, check.begun_at_ms)
        try:
            async with asyncio.timeout(self._settings.checker_timeout_ms / 1_000):
                decision = await self._checker(asked)
            if decision is not Decision.UNKNOWN:
                commit = decision is Decision.COMMIT
                await self._decisions.end(check.number, check.index, commit=commit)
        except MessageQueueError as error:
            _log.warning(
                "a check of a transaction could not be answered; the broker asks again",
                transaction=asked.id,
                reason=str(error),
            )
        except Exception:  # noqa: BLE001 - the application's; the broker asks again
            _log.exception("a checker failed; it will be asked again", transaction=asked.id)
