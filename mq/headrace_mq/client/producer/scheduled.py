"""
Scheduled messages: the form in which they are sent to the broker.

Used by `Producer`. Pure.
"""

from typing import NamedTuple

from msgspec.structs import replace

from headrace_mq.message import Message, check_message, not_text
from headrace_mq.protocol.scheduled import (
    AHEAD_MS_MAX,
    AT_HEADER,
    DELAY_HEADER,
    RESERVED_PREFIX,
    SCHEDULE_TOPIC,
    TOPIC_HEADER,
    delay_of_level,
)

__all__ = ["Scheduled", "When", "envelope"]


class Scheduled(NamedTuple):
    """A message that the broker holds until it is due.

    Attributes:
        id: by which it can be cancelled.
        due_at_ms: when, in ms since 1970 UTC; after a delay, by this machine's clock.
    """

    id: int
    due_at_ms: int


class When(NamedTuple):
    """When a message is due: at a time, or so long after the broker stored it. In ms."""

    at_ms: int | None
    delay_ms: int

    @classmethod
    def of(cls, *, at_ms: int | None, delay_ms: int | None, level: str | None) -> "When":
        """Takes exactly one of the three. Raises ValueError, saying what to change."""
        given = [name for name in (at_ms, delay_ms, level) if name is not None]
        if len(given) != 1:
            raise ValueError("say once when the message is due: at_ms, delay_ms or level")
        if at_ms is not None:
            if at_ms < 0:
                raise ValueError(f"at_ms counts from 1970 and is not negative, not {at_ms}")
            return cls(at_ms, 0)
        delay_ms = delay_of_level(level) if level is not None else delay_ms
        assert delay_ms is not None
        if not 0 <= delay_ms <= AHEAD_MS_MAX:
            raise ValueError(f"a delay is 0 to {AHEAD_MS_MAX} ms (366 days), not {delay_ms}")
        return cls(None, delay_ms)

    def due_at_ms(self, now_ms: int) -> int:
        """When it is due if it is stored now. Raises ValueError where that is too far ahead."""
        due_ms = now_ms + self.delay_ms if self.at_ms is None else self.at_ms
        # Checked here too: in the broker it would refuse everything that was sent together.
        if due_ms - now_ms > AHEAD_MS_MAX:
            raise ValueError(
                f"a message is scheduled at most {AHEAD_MS_MAX} ms (366 days) ahead, not"
                f" {due_ms - now_ms} ms"
            )
        return due_ms


def envelope(message: Message, when: When) -> Message:
    """Returns the message to send so that `message` is delivered later.

    Raises:
        ValueError, TypeError: the message cannot be scheduled; the sentence says what to change.
    """
    if fault := not_text(message):
        raise TypeError(fault)
    check_message(message)
    if any(name.startswith(RESERVED_PREFIX) for name in message.headers):
        raise ValueError(f"headers that begin with {RESERVED_PREFIX!r} are the schedule's own")
    if message.topic == SCHEDULE_TOPIC:
        raise ValueError(f"name the topic that the message is for, not {SCHEDULE_TOPIC}")
    if when.at_ms is None:
        moment = {DELAY_HEADER: str(when.delay_ms)}
    else:
        moment = {AT_HEADER: str(when.at_ms)}
    headers = {**message.headers, TOPIC_HEADER: message.topic, **moment}
    return replace(message, topic=SCHEDULE_TOPIC, headers=headers)
