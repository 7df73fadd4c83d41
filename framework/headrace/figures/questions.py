"""
Questions to a broker of which some may be refused: what this user may not read is noted, and left out.

Used by what looks at a whole broker, `headrace doctor`, `headrace top` and the console; uses `AdminClient`, with requests
that only read.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.protocol.administration import GroupSummary, QueueDescription
    from headrace_mq.protocol.bodies import TopicDescription

__all__ = ["Questions"]

# Topics may be deleted between two requests; a program that deletes one each time is a test.
_ATTEMPTS_MAX: Final = 5

T = TypeVar("T")


class Questions:
    """Questions to one broker.

    Args:
        admin: the connection.
    """

    def __init__(self, admin: "AdminClient") -> None:
        self._admin = admin
        self._denied: dict[str, None] = {}

    @property
    def denied(self) -> Sequence[str]:
        """What the broker said where it refused, each sentence once."""
        return tuple(self._denied)

    async def may(self, asked: Awaitable[T], otherwise: T) -> T:
        """Returns the answer; `otherwise` if this user may not ask that.

        Raises:
            MessageQueueError: the broker does not answer, or refuses for another reason.
        """
        from headrace_mq.errors import NotPermitted

        try:
            return await asked
        except NotPermitted as error:
            self._denied[str(error)] = None
            return otherwise

    async def queues(
        self, wanted: "Callable[[TopicDescription], bool]"
    ) -> "tuple[list[TopicDescription] | None, list[QueueDescription]]":
        """Returns all topics, and the states of the queues of some; None: topics may not be read.

        Args:
            wanted: of which topics.

        Raises:
            TopicNotFound: topics are deleted faster than they can be asked about.
        """
        from headrace_mq.errors import TopicNotFound

        for attempt in range(_ATTEMPTS_MAX):
            topics = await self.may(self._admin.topics(), None)
            asked = self._admin.queues([one for one in topics or () if wanted(one)])
            try:
                return topics, await self.may(asked, [])
            except TopicNotFound:  # one was deleted between the two requests
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("it returns or raises before")

    async def oldest(self, groups: "Iterable[GroupSummary]", most: int) -> dict[str, int]:
        """Returns for how long the oldest message waits for each group, in milliseconds, by the broker's clock.

        Args:
            groups: those without a lag, or with offsets of their own, are passed over.
            most: groups that are asked about, those with the most messages first; three requests each.
        """
        from headrace_mq.errors import GroupNotFound, TopicNotFound

        found: dict[str, int] = {}
        waiting = sorted(
            (one for one in groups if one.commits and one.lag), key=lambda one: -one.lag
        )
        for one in waiting[:most]:
            try:
                group = await self.may(self._admin.group(one.group), None)
                topics = [] if group is None else group.topics
                lag = await self.may(self._admin.lag(one.group, topics), None)
            except (GroupNotFound, TopicNotFound):  # gone meanwhile
                continue
            if lag is None:
                continue
            since = min((each.oldest_stored_at_ms for each in lag.queues if each.lag), default=0)
            if since:
                found[one.group] = max(0, lag.now_ms - since)
        return found
