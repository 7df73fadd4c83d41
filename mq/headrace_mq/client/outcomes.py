"""
What the broker says of each batch of a PRODUCE request.

Sits between: the answer, and `outbox`, which acts on it. Pure.
"""

from collections.abc import Sequence

from headrace_mq._net.link import Answer
from headrace_mq.errors import MalformedRequest, MessageQueueError, ResponseCode, error_for
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, decode

__all__ = ["outcomes"]


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
