"""
The offset at which a queue passes a moment in time, found by halving its range.

Sits between: `source`, which is given times, and the broker, which has no request for them. Each
step fetches one wire batch and looks at its append time. Those never decrease in a queue unless the
broker's clock was set back; then the answer is one of the places where the queue passes the moment.
"""

from collections.abc import Sequence

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.reader import Connect, ReadSettings, TopicReader, ask, connect

__all__ = ["fetch_offsets_at", "offset_at"]


def fetch_offsets_at(
    address: str,
    held: Sequence[QueueRange],
    moment_ms: int,
    *,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
) -> dict[QueueRef, int]:
    """Returns, for each queue, the first offset that was stored at the moment or later.

    Args:
        address: the broker's `host:port`.
        held: the queues' ranges; a queue that ends before the moment gets its end.
        moment_ms: milliseconds since 1970 UTC.
        settings: bounds of the connection.
        connect: opens it.

    Raises:
        ConnectionLost: the broker cannot be reached from this machine.
        OffsetOutOfRange: a range was deleted meanwhile.
    """

    def look(reader: TopicReader) -> dict[QueueRef, int]:
        return {
            QueueRef(one.topic, one.queue_id): offset_at(reader, one, moment_ms) for one in held
        }

    return ask(address, look, patient=True, settings=settings, connect=connect)


def offset_at(reader: TopicReader, held: QueueRange, moment_ms: int) -> int:
    """Returns the first offset of one queue that was stored at the moment or later."""
    queue = QueueRef(held.topic, held.queue_id)
    low, high = held.first, held.end
    while low < high:
        middle = (low + high) // 2
        header = _batch_at(reader, queue, middle, high)
        if header is not None and header.appended_at_ms < moment_ms:
            low = header.next_offset
        else:
            # Nothing at all stands between `middle` and `high` where there is no batch.
            high = middle if header is None else max(low, min(middle, header.base_offset))
    return low


def _batch_at(reader: TopicReader, queue: QueueRef, start: int, end: int) -> BatchHeader | None:
    # A broker always sends one whole batch, however little is asked for.
    parts = reader.read(queue, start, end, bytes_max=1)
    return next((part[0] for part in parts), None)
