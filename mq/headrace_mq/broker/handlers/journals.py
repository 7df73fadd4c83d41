"""
Requests about the two journals: messages for later, and messages that wait for a decision.

CANCEL_SCHEDULED and DESCRIBE_SCHEDULE, END_TRANSACTIONS, TAKE_CHECKS and DESCRIBE_TRANSACTIONS. A PRODUCE to
the journal's topic schedules messages, or prepares transactions.
"""

import asyncio

from headrace_mq._net.server import Connection
from headrace_mq.broker.handlers.sessions import check_name
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import BrokerStopping, InvalidArgument, ResponseCode
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.scheduled import CancelledScheduled, CancelScheduled
from headrace_mq.protocol.transactions import (
    Check,
    ChecksAnswer,
    EndTransactions,
    TakeChecks,
    TransactionsEnded,
)

__all__ = [
    "BUNDLES_PER_REQUEST_MAX",
    "cancel_scheduled",
    "describe_schedule",
    "describe_transactions",
    "end_transactions",
    "take_checks",
]

# Bundles in one request: some ten milliseconds of the loop's time.
BUNDLES_PER_REQUEST_MAX = 8_192


def end_transactions(state: BrokerState, connection: Connection, frame: Frame) -> None:
    """Commits and rolls back transactions; answered when that is durable.

    Raises:
        InvalidArgument: an entry names no transaction, or one of another group, or there are too
            many.
        BrokerStopping, StoreReadOnly: nothing was done.
    """
    if state.stopping:
        raise BrokerStopping("the broker is stopping and accepts no decisions; try again soon")
    request = decode(EndTransactions, frame.body)
    if len(request.ends) > BUNDLES_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"one request ends transactions of at most {BUNDLES_PER_REQUEST_MAX} bundles, not"
            f" {len(request.ends)}; decide in parts"
        )
    ended = state.transactions.end(request)

    def settled(outcome: asyncio.Future[TransactionsEnded]) -> None:
        failure = outcome.exception()
        if isinstance(failure, Exception):
            refuse(connection, frame, failure)
        elif not frame.is_oneway:
            connection.gather()
            connection.answer(ResponseCode.OK, frame.correlation, encode(outcome.result()))
            # At once: the producer waits for it.
            connection.flush()

    ended.add_done_callback(settled)


def take_checks(state: BrokerState, connection: Connection, frame: Frame) -> None:
    """Answers with transactions to be asked for, as soon as there are some.

    Raises:
        InvalidArgument: a name or a time is out of its range.
        BrokerStopping: nothing is asked any more.
    """
    if state.stopping:
        raise BrokerStopping("the broker is stopping and sends no checks; try again soon")
    request = decode(TakeChecks, frame.body)
    check_name("group", request.group)
    check_name("client", request.client_id)
    if request.wait_ms < 0:
        raise InvalidArgument("wait_ms of a request for checks is not negative")
    wait_ms = min(request.wait_ms, state.settings.fetch_wait_ms_max)

    def answer(checks: list[Check]) -> None:
        timer.cancel()
        if not frame.is_oneway:
            connection.answer(ResponseCode.OK, frame.correlation, encode(ChecksAnswer(checks)))

    timer = asyncio.get_running_loop().call_later(
        wait_ms / 1_000, state.transactions.stop_waiting, connection, answer
    )
    state.transactions.take_checks(connection, request, answer)


def describe_transactions(
    state: BrokerState, _connection: Connection, _frame: Frame
) -> tuple[bytes]:
    """Answers how many transactions are undecided, and names the oldest."""
    return (encode(state.transactions.describe()),)


def cancel_scheduled(
    state: BrokerState, connection: Connection, frame: Frame
) -> tuple[bytes] | None:
    """Takes a scheduled message back; answered when that is durable.

    Raises:
        BrokerStopping: nothing was done; try again soon.
        StoreFull, StoreReadOnly: nothing was done.
    """
    if state.stopping:
        raise BrokerStopping("the broker is stopping and cancels no messages; try again soon")
    durable = state.scheduler.cancel(decode(CancelScheduled, frame.body).number)
    if durable is None:
        return (encode(CancelledScheduled(cancelled=False)),)

    def settled(outcome: asyncio.Future[None]) -> None:
        failure = outcome.exception()
        if isinstance(failure, Exception):
            state.answer_later(connection, frame, failure)
        else:
            state.answer_later(connection, frame, encode(CancelledScheduled(cancelled=True)))

    durable.add_done_callback(settled)
    return None


def describe_schedule(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers how many messages wait, and when the next one is due."""
    return (encode(state.scheduler.describe()),)
