"""
Scheduled messages on the wire: the topic they are sent to, the headers that say when, and bodies.

To schedule a message is to produce it to queue 0 of SCHEDULE_TOPIC, with its key, tag, headers and
body as they shall arrive, and two headers more: TOPIC_HEADER says where to, and either AT_HEADER
(ms since 1970 UTC) or DELAY_HEADER (ms after the broker stored it) says when. The offset of the
acknowledgement is the number of the scheduled message; a client cancels the message by it.

Used by the producer and by the broker's schedule. Pure.
"""

from headrace_mq.client_settings import DELAY_LEVELS
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import Body

__all__ = [
    "AHEAD_MS_MAX",
    "AT_HEADER",
    "DELAY_HEADER",
    "RESERVED_PREFIX",
    "SCHEDULE_QUEUE",
    "SCHEDULE_TOPIC",
    "TOPIC_HEADER",
    "CancelScheduled",
    "CancelledScheduled",
    "ScheduleDescription",
    "delay_of_level",
]

SCHEDULE_TOPIC = "%SCHEDULE%"
SCHEDULE_QUEUE = QueueRef(SCHEDULE_TOPIC, 0)

# Headers of this prefix are the schedule's; they are taken off before a message is delivered.
RESERVED_PREFIX = "%schedule-"
TOPIC_HEADER = RESERVED_PREFIX + "topic"
AT_HEADER = RESERVED_PREFIX + "at"
DELAY_HEADER = RESERVED_PREFIX + "delay"

# A leap year: "the same day next year" is always allowed (RocketMQ: 3 days).
AHEAD_MS_MAX = 366 * 86_400_000


def delay_of_level(level: str) -> int:
    """Returns the delay of a named level in ms. Raises ValueError for a name that is none."""
    if level not in DELAY_LEVELS:
        raise ValueError(f"delay level {level!r} is unknown; use one of {', '.join(DELAY_LEVELS)}")
    return DELAY_LEVELS[level]


class CancelScheduled(Body, frozen=True):
    """Takes a scheduled message back; `number` is the offset that scheduling it answered."""

    number: int


class CancelledScheduled(Body, frozen=True):
    """Whether it was taken back, durably; False: it is delivered, was cancelled or never was."""

    cancelled: bool


class ScheduleDescription(Body, frozen=True):
    """What waits; the answer to DESCRIBE_SCHEDULE, whose request has no body.

    `next_due_at_ms` is -1 where nothing waits; `late_ms` is by how much the message that is due
    longest is late.
    """

    pending: int
    next_due_at_ms: int
    late_ms: int
