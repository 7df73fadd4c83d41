"""
Who is in a consumer group, where each broker group has members of its own. PURE.

    g1: ann, bob, cyd ─┐
    g2: ann, cyd ──────┴─▶ ann, cyd

A consumer joins at every broker group, which keeps the locks and offsets of its own queues. No broker group decides for
another, so none can stop the others. Queues are divided among the members that all broker groups have, by the same rule
in each member. A member that does not reach all of them gets no queue from the others' point of view, so that each queue
has an owner that reaches it; it may claim some itself, and then gets the locks that are free.

Used by `spread_link`.
"""

from collections.abc import Mapping, Sequence

from headrace_mq.protocol.bodies import GroupAnswer, GroupChanged, GroupMember

__all__ = ["GroupViews"]


class GroupViews:
    """One consumer's view of its group, over all broker groups.

    Attributes:
        group: the consumer's; empty before it joins.
        version: stands for the generation in what the consumer gets; grows with each change of members.
    """

    def __init__(self) -> None:
        self._views: dict[str, GroupAnswer] = {}
        self._connections: dict[str, int] = {}
        self._members: list[GroupMember] | None = None
        self.group = ""
        self.version = 0

    def join(
        self, group: str, answers: Mapping[str, GroupAnswer], connections: Mapping[str, int]
    ) -> GroupAnswer:
        """Takes the answers to JOIN_GROUP, by broker group, with the number of the connection of each."""
        self.group = group
        self._views, self._connections = dict(answers), dict(connections)
        self._members = None
        return self.merged()

    def hear(self, place: str, answer: GroupAnswer) -> None:
        """Takes what a broker group says of the members."""
        known = self._views.get(place)
        if known is not None and answer.generation >= known.generation:
            self._views[place] = answer

    def pushed(self, place: str, change: GroupChanged) -> GroupChanged | None:
        """Takes a pushed view; returns what to tell the consumer, or None."""
        known = self._views.get(place)
        if change.group != self.group or known is None or change.generation <= known.generation:
            return None
        before = self.version
        self._views[place] = GroupAnswer(
            change.generation, change.members, known.consume, known.retries
        )
        now = self.merged()
        if self.version == before:
            return None
        return GroupChanged(self.group, now.generation, now.members)

    def merged(self) -> GroupAnswer:
        """The view of all broker groups together."""
        views = list(self._views.values())
        members = _in_all([view.members for view in views])
        if members != self._members:
            self._members = members
            self.version += 1
        retries = [view.retries for view in views if view.retries >= 0]
        return GroupAnswer(
            self.version,
            members,
            all(view.consume for view in views),
            retries[0] if retries else -1,
        )

    def generation(self, place: str) -> int:
        """The generation that a broker group knows; 0: it has not let the member in."""
        known = self._views.get(place)
        return 0 if known is None else known.generation

    def has_joined(self, place: str, connection: int) -> bool:
        """Whether the member was let in by a broker group, over its connection of this number."""
        return self._connections.get(place) == connection


def _in_all(views: Sequence[Sequence[GroupMember]]) -> list[GroupMember]:
    if not views:
        return []
    names = set.intersection(*({member.member for member in view} for view in views))
    return [member for member in views[0] if member.member in names]
