"""
Decides whether a reader of events, the event topic and the event store belong together.

    another event store                              OTHER_STORE: refused
    the store lacks a stream the reader has seen     OLDER_STORE: refused; it is an older copy
    another topic, or a shorter one, or another      FROM_START: the version gate lets each event
    message at the place of the reader's mark        through once
    brokers lost messages that the reader has seen   BACK to the first one that has changed; the
                                                     version gate as before
    otherwise                                        GO_ON

Used by `check`, which acts on it. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from headrace.transports.base import TopicLineage

__all__ = [
    "Kept",
    "Mark",
    "Verdict",
    "fresh_marks",
    "judge",
    "refusal",
    "renewed",
    "state_marks",
    "why_trimmed",
]

_WHAT_TO_DO = (
    "stop the services, bring the right event store back, or make this one the truth:"
    " `headrace events republish --replace`, then `headrace projection rebuild NAME --from store`"
    " for each projection"
)


class Verdict(Enum):
    """What a reader may do."""

    GO_ON = "go on"
    FROM_START = "from start"
    BACK = "back"
    OTHER_STORE = "other store"
    OLDER_STORE = "older store"

    @property
    def refused(self) -> bool:
        """Whether readers may not run until you have decided what to do."""
        return self in {Verdict.OTHER_STORE, Verdict.OLDER_STORE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The last message that a reader has seen in one queue.

    Attributes:
        next_offset: the offset after the message.
        message_id: the message's command id.
        stream: aggregate and command of the last stream that it has seen; None: there is none yet.
        epoch: of the queue's brokers, since before it has seen the message; 0: not known.
    """

    next_offset: int
    message_id: str
    stream: tuple[str, str] | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is stored about a reader.

    Attributes:
        topic: identity of the topic that its offsets belong to; None: not noted yet.
        store: identity of the event store whose events it has seen; None: not noted yet.
        marks: its marks by queue.
        offsets: its next offsets by queue, if it stores them itself, as projections do.
    """

    topic: str | None = None
    store: str | None = None
    marks: Mapping[int, Mark] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)

    @property
    def epochs(self) -> dict[int, int]:
        """By queue, the epoch in which what it knows was true."""
        return {number: mark.epoch for number, mark in self.marks.items() if mark.epoch}


def judge(
    kept: Kept,
    *,
    topic: TopicLineage,
    found: Mapping[tuple[int, int], str],
    store: str,
    missing: Collection[tuple[str, str]],
    changed: Mapping[int, int] | None = None,
) -> Verdict:
    """Decides for one reader.

    Args:
        kept: what is stored about it.
        topic: the topic now.
        found: the command id of the message before each mark, by queue and `next_offset`, for all marks
            that are within the topic.
        store: identity of the event store now.
        missing: the streams that readers have seen and the store does not have.
        changed: by queue, where messages have changed since the epochs of its marks.
    """
    if kept.store is not None and kept.store != store:
        return Verdict.OTHER_STORE
    if any(mark.stream in missing for mark in kept.marks.values() if mark.stream is not None):
        return Verdict.OLDER_STORE
    if kept.topic is not None and topic.identity and kept.topic != topic.identity:
        return Verdict.FROM_START
    # What stands from there on is no proof of another topic: it is read again.
    lost = dict(changed or {})
    ends = {number: end for number, (_, end) in topic.ranges.items()} | lost
    places = [*kept.offsets.items(), *((n, mark.next_offset) for n, mark in kept.marks.items())]
    beyond = {number for number, offset in places if offset > ends.get(number, 0)}
    if not beyond <= lost.keys():
        return Verdict.FROM_START
    for number, mark in kept.marks.items():
        if number in lost and mark.next_offset > lost[number]:
            continue
        if found.get((number, mark.next_offset), mark.message_id) != mark.message_id:
            return Verdict.FROM_START
    return Verdict.BACK if beyond else Verdict.GO_ON


def renewed(
    kept: Kept, topic: TopicLineage, *, changed: Mapping[int, int], from_start: bool
) -> dict[int, Mark]:
    """Returns the marks of a reader that are to be stored, so that it is known of all of its queues that they are right now.

    Args:
        kept: what is stored about it.
        topic: the topic now; without epochs there is nothing to store.
        changed: by queue, where messages have changed since.
        from_start: it begins at the topic's start, and its marks are deleted.
    """
    fresh = {}
    for number, epoch in topic.epochs.items():
        before = None if from_start else kept.marks.get(number)
        mark = before or Mark(next_offset=0, message_id="")
        if mark.next_offset > changed.get(number, mark.next_offset):
            # The message is lost; that the store had its stream still counts.
            mark = Mark(next_offset=0, message_id="", stream=mark.stream)
        if (now := replace(mark, epoch=epoch)) != before:
            fresh[number] = now
    return fresh


def fresh_marks(
    kept: Mapping[tuple[str, int], Kept],
    topic: TopicLineage,
    *,
    store: str,
    changed: Mapping[tuple[str, int], Mapping[int, int]],
    reset: Collection[tuple[str, int]],
) -> dict[tuple[str, int], dict[int, Mark]]:
    """Returns the marks to store, by reader; those of whom all is stored are left out.

    Args:
        kept: what is stored about readers, by name and generation.
        topic: the topic now.
        store: identity of the event store now.
        changed: for each reader, by queue, where messages have changed.
        reset: those that begin at the topic's start.
    """
    fresh = {}
    for reader, each in kept.items():
        whole = each.topic != topic.identity or each.store != store or reader in reset
        marks = renewed(each, topic, changed=changed[reader], from_start=reader in reset)
        if whole or marks:
            fresh[reader] = marks
    return fresh


def state_marks(state: Mark, topic: TopicLineage) -> dict[int, Mark]:
    """Returns the marks of the topic's own state: what was true of it, and in which epochs."""
    bare = Mark(next_offset=0, message_id="")
    marks = {number: replace(bare, epoch=epoch) for number, epoch in topic.epochs.items()}
    return marks | {0: replace(state, epoch=topic.epochs.get(0, 0))}


def refusal(verdict: Verdict, readers: Sequence[str], *, store: str, topic: str) -> str:
    """Returns the sentence that says why readers may not run, and what to do.

    Args:
        verdict: one that refuses.
        readers: the readers that have seen streams which the store lacks; empty: the topic holds them.
        store: identity of the event store.
        topic: the event topic's name.
    """
    who = f"{', '.join(sorted(readers))} of {topic} have read" if readers else f"{topic} holds"
    if verdict is Verdict.OTHER_STORE:
        why = f"events of another event store than this one ({store[:8]})"
    else:
        why = f"events that are not in this event store ({store[:8]}), which is older"
    return f"{who} {why}; {_WHAT_TO_DO}"


def why_trimmed(reader: str, begins: Mapping[int, int], topic: TopicLineage) -> str | None:
    """Returns why a reader may not begin at offsets, because the topic has lost messages from there on.

    A topic that was made again under its name begins above 0 too, but has lost nothing.

    Args:
        reader: its name.
        begins: by queue, the next offset that it reads.
        topic: the topic now.

    Returns:
        A sentence that says what to do; None: it may.
    """
    for number, begin in sorted(begins.items()):
        if topic.has_lost(number, begin):
            first, _ = topic.ranges[number]
            return (
                f"{reader} begins at offset {begin} of queue {number}, which begins at {first}, because"
                " earlier messages were trimmed. A projection is built from sealed history or from the"
                " event store: `headrace projection rebuild NAME --from-export DIR` or `--from store`."
                " Event handlers and processes skip the trimmed events if you say so: `headrace group"
                " reset GROUP --to earliest`"
            )
    return None
