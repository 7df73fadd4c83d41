"""
CANCEL_SCHEDULED and DESCRIBE_SCHEDULE; to schedule is to PRODUCE.

Sits between: the dispatcher and the broker's scheduler.
"""

import asyncio

from headrace_mq._net.server import Connection
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import BrokerStopping, ResponseCode
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.scheduled import CancelledScheduled, CancelScheduled

__all__ = ["cancel_scheduled", "describe_schedule"]


def cancel_scheduled(
    state: BrokerState, connection: Connection, frame: Frame
) -> tuple[bytes] | None:
    """Takes a scheduled message back; answered when that is durable.

    Raises:
        BrokerStopping: nothing was done; try again soon.
        StoreFull, StoreReadOnly: nothing was done.
    """
    if state.stopping:
        raise BrokerStopping("the broker is stopping and cancels nothing any more; try again soon")
    durable = state.scheduler.cancel(decode(CancelScheduled, frame.body).number)
    if durable is None:
        return (encode(CancelledScheduled(cancelled=False)),)

    def settled(outcome: asyncio.Future[None]) -> None:
        failure = outcome.exception()
        if isinstance(failure, Exception):
            refuse(connection, frame, failure)
        elif not frame.is_oneway:
            body = encode(CancelledScheduled(cancelled=True))
            connection.answer(ResponseCode.OK, frame.correlation, body)

    durable.add_done_callback(settled)
    return None


def describe_schedule(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers how many messages wait, and when the next one is due."""
    return (encode(state.scheduler.describe()),)
