"""
What the broker says of each batch of a PRODUCE request, or that it said nothing in time.

Sits between: the answer, and `send_buffer`, which acts on it. Pure.
"""

from collections.abc import Sequence

from headrace_mq._net.client_connection import Answer
from headrace_mq.client.batch.batch import Batch
from headrace_mq.errors import (
    MalformedRequest,
    MessageQueueError,
    ResponseCode,
    SendTimeout,
    error_for,
)
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, decode

__all__ = ["outcomes", "too_late"]


def outcomes(answer: Answer, count: int) -> Sequence[Produced | MessageQueueError]:
    """What became of each batch of a request."""
    if isinstance(answer, MessageQueueError):
        return [answer] * count
    try:
        results = decode(ProduceAnswer, answer).results
    except MalformedRequest as error:
        return [error] * count
    if len(results) != count:
        return [MalformedRequest(f"{len(results)} answers came for {count} batches")] * count
    return [
        result if result.code == ResponseCode.OK else error_for(result.code, result.sentence)
        for result in results
    ]


def too_late(address: str, timeout_ms: int, batch: Batch | None) -> SendTimeout:
    """What a message ends with whose time was up, in a batch or before it had one."""
    if batch is None or not batch.attempts:
        return SendTimeout(f"not sent within {timeout_ms} ms to {address}")
    if len(batch.refusals) == batch.attempts:
        return SendTimeout(
            f"not stored: {address} refused the message for {timeout_ms} ms, last because"
            f" {batch.refusals[-1]}"
        )
    return SendTimeout(
        f"unknown outcome: no acknowledgement from {address} within {timeout_ms} ms;"
        " the message may be stored, and sending it again may store it twice"
    )
