"""
Limits the backlogs of groups, and acts on a group above its limit.

The backlog of a group is the number of messages that it has not committed, over all queues that it reads or has
read. Messages that are not readable yet do not count, so those on their way to the disk may exceed the limit.

Used by the handlers, which ask whether a group accepts messages, and by the broker's timer and store, which
call `look`. `GroupBacklog` gives the numbers of a group.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import BacklogFull, BrokerError, Throttled
from headrace_mq.message import QueueRef
from headrace_mq.protocol.limits import BacklogDescription

__all__ = ["BLOCK", "DROP_OLDEST", "POLICIES", "REJECT", "Backlogs", "Blocked", "Limit", "level"]

BLOCK, REJECT, DROP_OLDEST = POLICIES = ("block", "reject", "drop_oldest")
# A waiting producer checks for room at this interval.
_LOOK_MS: Final = 50
# The interval between two log lines about the skipped messages of one group.
_TELL_EVERY_MS: Final = 10_000

_log = get_logger(__name__)


class Limit(NamedTuple):
    """The most messages of a group's backlog, and the policy above it."""

    messages_max: int
    policy: str


class GroupBacklog(Protocol):
    """The numbers of a group, and the way to move it; the broker implements it."""

    def lags(self, group: str) -> Mapping[QueueRef, int]:
        """Returns the backlog of a group, by queue."""
        ...

    def skip(self, group: str, counts: Mapping[QueueRef, int]) -> None:
        """Moves a group's offsets forward, by this many messages in each queue."""
        ...


class Backlogs:
    """The groups that have a limit.

    Args:
        standing: gives the backlogs of groups.
        alarm_percent: a backlog of this share of its limit raises the alarm.
    """

    def __init__(self, standing: GroupBacklog, *, alarm_percent: int) -> None:
        self._standing = standing
        self._alarm_percent = alarm_percent
        self._limits: dict[str, Limit] = {}
        self._alarmed: set[str] = set()
        self._dropped: dict[str, int] = {}
        # When it was logged last, and the messages skipped until then.
        self._told: dict[str, tuple[int, int]] = {}

    def replace(self, limits: Mapping[str, Limit]) -> None:
        """Sets the limits of all groups."""
        self._limits = dict(limits)
        self._alarmed &= limits.keys()
        self._dropped = {group: self._dropped.get(group, 0) for group in limits}
        self._told = {group: told for group, told in self._told.items() if group in limits}

    def check(self, topic: str) -> None:
        """Raises BacklogFull if a group of the topic accepts no more messages."""
        for group, behind in self._full(topic, REJECT):
            raise BacklogFull(self._sentence(group, behind))

    def blocked(self, topics: Iterable[str]) -> list["Blocked"]:
        """Returns the groups that producers of these topics must wait for."""
        wanted = frozenset(topics)
        return [
            Blocked(group, wanted, self._behind_of)
            for group, limit in self._limits.items()
            if limit.policy == BLOCK
        ]

    def drops(self, group: str) -> bool:
        """Whether members of a group must not read below its offset."""
        limit = self._limits.get(group)
        return limit is not None and limit.policy == DROP_OLDEST

    def look(self, now_ms: int) -> None:
        """Raises and ends alarms, and moves the groups that skip messages above their limit."""
        for group, limit in self._limits.items():
            lags = self._standing.lags(group)
            behind = sum(lags.values())
            self._alarm(group, limit, behind)
            if limit.policy == DROP_OLDEST and behind > limit.messages_max:
                self._skip(group, lags, behind - limit.messages_max)
                self._tell(group, now_ms)

    def describe(self) -> list[BacklogDescription]:
        """Describes every limit, by group."""
        return [
            BacklogDescription(
                group,
                limit.messages_max,
                limit.policy,
                sum(self._standing.lags(group).values()),
                self._dropped[group],
                alarm=group in self._alarmed,
            )
            for group, limit in sorted(self._limits.items())
        ]

    @property
    def alarms(self) -> list[str]:
        """The groups whose backlog is near its limit, or above it."""
        return sorted(self._alarmed)

    def _skip(self, group: str, lags: Mapping[QueueRef, int], excess: int) -> None:
        try:
            self._standing.skip(group, level(lags, excess))
        except BrokerError as error:
            # The caller made messages visible or committed; it must not fail because of this.
            _log.error(
                "a group over its backlog limit could not be moved forward",
                group=group,
                reason=str(error),
            )
        else:
            self._dropped[group] += excess

    def _tell(self, group: str, now_ms: int) -> None:
        told_at_ms, told = self._told.get(group, (now_ms - _TELL_EVERY_MS, 0))
        dropped = self._dropped[group]
        if dropped > told and now_ms - told_at_ms >= _TELL_EVERY_MS:
            self._told[group] = now_ms, dropped
            _log.warning(
                "a group skips messages that it has not consumed",
                group=group, skipped=dropped - told, skipped_in_all=dropped,
            )  # fmt: skip

    def _alarm(self, group: str, limit: Limit, behind: int) -> None:
        near = behind * 100 >= limit.messages_max * self._alarm_percent
        if near and group not in self._alarmed:
            self._alarmed.add(group)
            _log.warning(
                "the backlog of a group is near its limit",
                group=group, behind=behind, limit=limit.messages_max, policy=limit.policy,
            )  # fmt: skip
        elif not near and group in self._alarmed:
            self._alarmed.discard(group)
            _log.info("the backlog of a group is well below its limit", group=group, behind=behind)

    def _full(self, topic: str, policy: str) -> Iterable[tuple[str, int]]:
        for group, limit in self._limits.items():
            if limit.policy == policy:
                behind = self._behind_of(group, frozenset((topic,)))
                if behind is not None:
                    yield group, behind

    def _behind_of(self, group: str, topics: frozenset[str]) -> int | None:
        """Returns the backlog of a full group that reads one of the topics, else None."""
        limit = self._limits.get(group)
        if limit is None:
            return None
        lags = self._standing.lags(group)
        behind = sum(lags.values())
        reads = any(queue.topic in topics for queue in lags)
        return behind if reads and behind >= limit.messages_max else None

    def _sentence(self, group: str, behind: int) -> str:
        return (
            f"group {group!r} is {behind} messages behind, and its limit is"
            f" {self._limits[group].messages_max}; let its consumers catch up, or raise the limit"
        )


class Blocked:
    """A producer's wait for a group; see `throttle.Obstacle`."""

    __slots__ = ("_behind_of", "_topics", "key")

    def __init__(
        self,
        group: str,
        topics: frozenset[str],
        behind_of: Callable[[str, frozenset[str]], int | None],
    ) -> None:
        self.key = group
        self._topics = topics
        self._behind_of = behind_of

    def wait_ms(self, _now_ms: int) -> int:
        """Returns 0 if there is room, else the time until the next check."""
        return _LOOK_MS if self._behind_of(self.key, self._topics) is not None else 0

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Does nothing: the list of connections shows the waiting requests."""

    def refusal(self, waited_ms: int) -> BrokerError:
        """Returns the error for a producer that may not wait any longer."""
        behind = self._behind_of(self.key, self._topics)
        return Throttled(
            f"group {self.key!r} is {behind or 0} messages behind, which is its limit, and this"
            f" request has waited {waited_ms} ms already; let its consumers catch up, or raise the"
            " limit"
        )


def level(lags: Mapping[QueueRef, int], excess: int) -> dict[QueueRef, int]:
    """Returns how many messages to skip in each queue, `excess` in all: most in the longest queue.

    A queue with skipped messages keeps at most one message less than any other queue.
    """
    # The lowest level above which there are not more messages than the excess.
    low, high = 0, max(lags.values(), default=0)
    while low < high:
        middle = (low + high) // 2
        if sum(max(0, lag - middle) for lag in lags.values()) <= excess:
            high = middle
        else:
            low = middle + 1
    counts = {queue: lag - low for queue, lag in lags.items() if lag > low}
    rest = excess - sum(counts.values())
    for queue, lag in sorted(lags.items()):
        if rest and lag >= low > 0:
            counts[queue] = counts.get(queue, 0) + 1
            rest -= 1
    return counts
