"""
Seals again and again: a part when enough time has passed, or earlier when enough bytes wait.

Used by `headrace history seal --every`; `seal` does the work. What is away for a while (the broker, the
database) is asked again at the next look; all other errors end it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from headrace._runtime.clock import Clock
from headrace._runtime.log import get_logger
from headrace.spark.archive import ExportedPart, ends_of, exported_parts
from headrace.spark.history.seal import Sealing
from headrace.spark.topic import fetch_ranges
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.bodies import QueueRange

__all__ = ["LOOK_MS", "PART_BYTES_DEFAULT", "is_away", "keep_sealed", "waiting_bytes", "waiting_in"]

log = get_logger(__name__)

# Errors of a database that is there: a statement is wrong, which is a defect.
_ANSWERED: Final = (DataError, IntegrityError, ProgrammingError)
# Between two looks at the broker: a restart is over by then, and a look costs one request.
LOOK_MS: Final = 5_000
# Bytes of a part's files from which a part is written before its time: large enough that a year of heavy
# traffic is thousands of parts, small enough to be written and compared within a minute.
PART_BYTES_DEFAULT: Final = 256 << 20
# What a message takes in files where no part tells: they are compressed.
_MESSAGE_BYTES: Final = 200


def waiting_bytes(parts: list[ExportedPart], held: list[QueueRange]) -> int:
    """Returns about how many bytes the files of the next part would have. Pure.

    Args:
        parts: that there are; the last one tells what a message takes.
        held: of the event topic's queues.
    """
    begin = {queue.queue_id: offset for queue, offset in ends_of(parts, held).items()}
    messages = sum(one.end - begin[one.queue_id] for one in held)
    last = parts[-1] if parts else None
    if last is None or not last.messages:
        return messages * _MESSAGE_BYTES
    return messages * last.bytes // last.messages


def waiting_in(folder: Path, broker: str, topic: str) -> int:
    """Asks the broker what `waiting_bytes` needs.

    Raises:
        MessageQueueError: the broker is away, or has no such topic.
        ProjectionError: the parts do not fit the topic.
    """
    return waiting_bytes(exported_parts(folder), fetch_ranges(broker, [topic]))


def is_away(error: BaseException) -> bool:
    """Whether an error means that the broker or the database does not answer now."""
    return any(
        isinstance(each, MessageQueueError | DBAPIError | OSError)
        and not isinstance(each, _ANSWERED)
        for each in (error, error.__cause__)
    )


def keep_sealed(
    seal: Callable[[], Sealing],
    *,
    waiting: Callable[[], int],
    every_ms: int,
    part_bytes: int,
    clock: Clock,
    pause: Callable[[int], None],
) -> Sealing:
    """Seals until a part and the event store differ; returns that outcome.

    Args:
        seal: seals once, and tells of the outcome.
        waiting: returns about how many bytes wait.
        every_ms: the longest time between two parts, in milliseconds.
        part_bytes: a part is written earlier if so many bytes wait.
        clock: measures the time between parts.
        pause: waits so many milliseconds; its exceptions end the work.

    Raises:
        HeadraceError, SQLAlchemyError: as `seal`, unless something is only away for a while.
    """
    while True:
        began_ms = clock.monotonic_ms()
        try:
            outcome = seal()
        except Exception as error:
            if not is_away(error):
                raise
            log.warning("nothing was sealed; the next try comes soon", error=str(error))
            pause(LOOK_MS)
            continue
        if outcome.differences:
            return outcome
        while clock.monotonic_ms() - began_ms < every_ms:
            pause(min(LOOK_MS, every_ms))
            try:
                if waiting() >= part_bytes:
                    break
            except MessageQueueError as error:
                log.warning("the broker does not answer", error=str(error))
