"""
Whether a reader of events, the event topic and the event store belong together.

    another event store                            REFUSE
    what the reader has seen is not in the store   REFUSE: an older copy of the store
    another topic, or a shorter one, or another    FROM_START: the version gate lets each event
    message where the reader stands                through once
    else                                           GO_ON

Sits between: what is known of the three, and who starts readers. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from headrace.transports.base import TopicLineage

__all__ = ["Kept", "Mark", "Verdict", "judge", "refusal"]

_WAY_ON = (
    "stop the services, bring the right event store back, or make this one the truth:"
    " `headrace events republish --replace`, then `headrace projection rebuild NAME --from store`"
    " for each projection"
)


class Verdict(Enum):
    """What a reader may do."""

    GO_ON = "go on"
    FROM_START = "from start"
    OTHER_STORE = "other store"
    OLDER_STORE = "older store"

    @property
    def refused(self) -> bool:
        """Whether nothing may be read until somebody has decided."""
        return self in {Verdict.OTHER_STORE, Verdict.OLDER_STORE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a reader has seen in one queue.

    Attributes:
        next_offset: after a message that it has seen.
        message_id: that message's command id.
        stream: aggregate and command of a stream that it has seen; None: of none so far.
    """

    next_offset: int
    message_id: str
    stream: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is stored about a reader.

    Attributes:
        topic: identity of the topic that its offsets belong to; None: nobody has noted it.
        store: identity of the event store that it has seen; None: nobody has noted it.
        marks: by queue.
        offsets: by queue where it goes on, where it keeps that itself.
    """

    topic: str | None = None
    store: str | None = None
    marks: Mapping[int, Mark] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)


def judge(
    kept: Kept,
    *,
    topic: TopicLineage,
    found: Mapping[tuple[int, int], str],
    store: str,
    missing: Collection[tuple[str, str]],
) -> Verdict:
    """Decides for one reader.

    Args:
        kept: what is stored about it.
        topic: as it is now.
        found: command ids of messages by queue and the offset after them, of all its marks that are
            within the topic.
        store: identity of the event store now.
        missing: of the streams that it has seen those that the store does not have.
    """
    if kept.store is not None and kept.store != store:
        return Verdict.OTHER_STORE
    if any(mark.stream in missing for mark in kept.marks.values() if mark.stream is not None):
        return Verdict.OLDER_STORE
    if kept.topic is not None and topic.identity and kept.topic != topic.identity:
        return Verdict.FROM_START
    ends = {number: end for number, (_, end) in topic.ranges.items()}
    if any(offset > ends.get(number, 0) for number, offset in kept.offsets.items()):
        return Verdict.FROM_START
    for number, mark in kept.marks.items():
        if mark.next_offset > ends.get(number, 0):
            return Verdict.FROM_START
        if found.get((number, mark.next_offset), mark.message_id) != mark.message_id:
            return Verdict.FROM_START
    return Verdict.GO_ON


def refusal(verdict: Verdict, readers: Sequence[str], *, store: str, topic: str) -> str:
    """Returns the sentence that says why readers stand still, and the way on.

    Args:
        verdict: one that refuses.
        readers: which of them have read what the store does not have; none: the topic holds it.
        store: identity of the event store.
        topic: the event topic.
    """
    who = f"{', '.join(sorted(readers))} of {topic} have read" if readers else f"{topic} holds"
    if verdict is Verdict.OTHER_STORE:
        why = f"events of another event store than this one ({store[:8]})"
    else:
        why = f"events that are not in this event store ({store[:8]}), which is older"
    return f"{who} {why}; {_WAY_ON}"
