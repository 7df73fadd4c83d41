"""
Consumer groups: who is a member, since when, and who must hear of a change. PURE.

The broker allocates nothing: every member computes the same allocation from the same list. What
the broker owes is one list per generation, and a new generation for every change of it.

Used by the handlers, which say what happened and when. It never knows the clock, connections (a session is
only compared) or offsets.
"""

import sys
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from headrace_mq.errors import (
    GroupNotEmpty,
    InconsistentGroup,
    InvalidArgument,
    NameTaken,
    NotGroupMember,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    GroupAnswer,
    GroupChanged,
    GroupMember,
    Heartbeat,
    HeldQueues,
    JoinGroup,
    LeaveGroup,
)

__all__ = [
    "CONTRACT_CHARACTERS_MAX",
    "GROUP_BYTES_MAX",
    "MEMBERSHIPS_PER_SESSION_MAX",
    "MEMBERS_PER_GROUP_MAX",
    "GroupChange",
    "Groups",
    "Member",
]

# Every change is pushed to every member, so a group's cost grows with the square of its members.
MEMBERS_PER_GROUP_MAX = 1_024
# A process with more consumers than this opens a second connection.
MEMBERSHIPS_PER_SESSION_MAX = 1_024
# Of one member's contract: a filter for each of 256 topics, long ones cut by the client.
CONTRACT_CHARACTERS_MAX = 64 << 10
# What the members of one group take: every view of it is pushed to each of them, and fits a frame.
GROUP_BYTES_MAX = 4 << 20
# Of a member, of one of its topics, and of the number of a queue that it says it holds (with since when, and
# once more as it is shown); the names not counted.
_MEMBER_BYTES, _TOPIC_BYTES, _NUMBER_BYTES = 400, 72, 220
_NEVER: Mapping[QueueRef, int] = MappingProxyType({})

S = TypeVar("S", bound=Hashable)


class GroupChange(NamedTuple, Generic[S]):
    """A new view of a group, and the sessions that have not seen it yet."""

    view: GroupChanged
    tell: list[S]


class Member(NamedTuple, Generic[S]):
    """A member of a group as others may see it; `heard_at_ms` is its last sign of life.

    One without a session is away, and its place is kept until `kept_until_ms`.
    """

    name: str
    session: S | None
    topics: tuple[str, ...]
    heard_at_ms: int
    kept_until_ms: int


@dataclass(slots=True)
class _Member(Generic[S]):
    # None: it is away.
    session: S | None
    topics: list[str]
    heard_at_ms: int
    # What it said it holds, and what of that the group's newest view shows.
    held: list[HeldQueues]
    contract: Mapping[str, str]
    # When it first said of each of these queues that it holds it.
    since_ms: Mapping[QueueRef, int]
    # Who it is on any connection, and for how long its place is kept while it has none.
    client: str
    away_ms: int
    shown: list[HeldQueues] = field(default_factory=list)
    # What it takes, about, with what it holds as the newest view shows it.
    size: int = 0
    kept_until_ms: int = 0


@dataclass(slots=True)
class _Group(Generic[S]):
    generation: int
    members: dict[str, _Member[S]]
    size: int = 0


class Groups(Generic[S]):
    """All groups of a broker; a group exists while it has members.

    Args:
        member_expiry_ms: silence after which a member has left, and the longest that a place is kept.
        takeover_ms: silence after which another client may come under a member's chosen name.
        bytes_max: what all members take, about; above it no member joins.
        session_bytes_max: what the members of one session take.
        epoch: the broker's start number; generations grow across restarts because of it.
        on_left: told the group and the member whenever one is gone.
    """

    def __init__(
        self,
        *,
        member_expiry_ms: int,
        takeover_ms: int = 0,
        bytes_max: int = sys.maxsize,
        session_bytes_max: int = sys.maxsize,
        epoch: int = 0,
        on_left: Callable[[str, str], None] = lambda _group, _member: None,
    ) -> None:
        self._on_left = on_left
        self._member_expiry_ms = member_expiry_ms
        self._takeover_ms = takeover_ms
        # One counter for all groups, so that a group which empties and fills again never repeats
        # a generation. 2^24 changes per start keep the epochs apart.
        self._generation = epoch << 24
        self._groups: dict[str, _Group[S]] = {}
        self._by_session: dict[S, set[tuple[str, str]]] = {}
        self._bytes_max = bytes_max
        self._session_bytes_max = session_bytes_max
        self._session_sizes: dict[S, int] = {}
        self.size = 0

    def join(
        self, request: JoinGroup, *, session: S, client: str = "", now_ms: int
    ) -> GroupChange[S] | None:
        """Enters a member, or gives it new topics or a new session.

        Returns None where the view of the group stays as it was.

        Raises:
            InvalidArgument: the group or the session is full, or the contract too long.
            InconsistentGroup: the member would do otherwise what all members have to do alike.
            NameTaken: another client is at work under the name.
        """
        name, member, topics = request.group, request.member, sorted(set(request.topics))
        group = self._groups.get(name)
        known = group.members.get(member) if group else None
        self._check_name(request, known, client, now_ms)
        self._check_room(group, known, session)
        contract = _agreed(request, group)
        size = _size(name, member, topics, request.held)
        if contract is request.contract:
            size += sum(len(what) + len(how) for what, how in contract.items())
        self._check_size(group, known, session, size)
        if group is None:
            group = self._groups[name] = _Group(0, {})
        if known is not None:
            self._weigh(group, known, 0)
            self._forget_session(known, name, member)
        shown = known.shown if known else []
        since_ms = _since(request.held, known.since_ms if known else _NEVER, now_ms)
        away_ms = min(request.away_ms, self._member_expiry_ms)
        entry = _Member(
            session, topics, now_ms, request.held, contract, since_ms, client, away_ms, shown
        )
        group.members[member] = entry
        self._weigh(group, entry, size)
        self._by_session.setdefault(session, set()).add((name, member))
        if known is not None and known.topics == topics:
            return None
        return self._change(name, group, joined=member)

    def leave(self, request: LeaveGroup, *, session: S, now_ms: int) -> GroupChange[S] | None:
        """Takes a member out at once, or away; returns None where no member has to know.

        Raises:
            NotGroupMember: it is no member, or another session has taken its place.
        """
        entry = self.require_member(request.group, request.member, session=session)
        if request.away and entry.away_ms > 0:
            self._take_away(request.group, request.member, now_ms)
            return None
        changes = self._remove([(request.group, request.member)])
        return changes[0] if changes else None

    def heartbeat(self, request: Heartbeat, *, session: S, now_ms: int) -> GroupAnswer:
        """Keeps a member alive.

        Raises:
            NotGroupMember: it must join again.
            InvalidArgument: there is no room for all that it says it holds.
        """
        member = self.require_member(request.group, request.member, session=session)
        member.heard_at_ms = now_ms
        if request.held or member.held:
            size = _size(request.group, request.member, member.topics, request.held)
            group = self._groups[request.group]
            self._check_size(group, member, session, size)
            self._weigh(group, member, size)
        if request.held != member.held:
            member.held = request.held
            member.since_ms = _since(request.held, member.since_ms, now_ms)
        return self.view(request.group)

    def disconnect(self, session: S, *, now_ms: int) -> list[GroupChange[S]]:
        """Takes out all members of a session, but for those whose place is kept for a while."""
        gone = []
        for name, member in sorted(self._by_session.get(session, ())):
            if self._groups[name].members[member].away_ms > 0:
                self._take_away(name, member, now_ms)
            else:
                gone.append((name, member))
        return self._remove(gone)

    def expire(self, now_ms: int) -> list[GroupChange[S]]:
        """Takes out all members that were silent, or away, for too long."""
        oldest = now_ms - self._member_expiry_ms
        gone = [
            (name, member)
            for name, group in self._groups.items()
            for member, entry in group.members.items()
            if (
                entry.heard_at_ms <= oldest
                if entry.session is not None
                else entry.kept_until_ms <= now_ms
            )
        ]
        return self._remove(gone)

    def view(self, group: str) -> GroupAnswer:
        """Everyone's view of a group, members in order of their names; empty without members."""
        held = self._groups.get(group)
        return GroupAnswer(held.generation, _listed(held)) if held else GroupAnswer(0, [])

    def names(self) -> Collection[str]:
        """The groups that have members, in no certain order; a view, not to be changed."""
        return self._groups.keys()

    def topics_of(self, group: str) -> set[str]:
        """The topics that the members of a group subscribed to."""
        held = self._groups.get(group)
        return set().union(*(entry.topics for entry in held.members.values())) if held else set()

    def members(self, group: str) -> list[Member[S]]:
        """The members of a group, in order of their names."""
        held = self._groups.get(group)
        return (
            [
                Member(
                    name, entry.session, tuple(entry.topics), entry.heard_at_ms, entry.kept_until_ms
                )
                for name, entry in sorted(held.members.items())
            ]
            if held
            else []
        )

    def said(self, group: str, topics: Collection[str]) -> dict[QueueRef, tuple[str, int]]:
        """Who says that it holds a queue of these topics, and since when.

        Of several that say so, as may be while a queue moves, the one that said it last.
        """
        held, found = self._groups.get(group), dict[QueueRef, tuple[str, int]]()
        for name, entry in held.members.items() if held else ():
            for queue, since_ms in entry.since_ms.items():
                if queue.topic in topics and (queue not in found or found[queue][1] <= since_ms):
                    found[queue] = name, since_ms
        return found

    def groups_of(self, session: S) -> list[str]:
        """The groups that a session has members in, by name."""
        return sorted({group for group, _ in self._by_session.get(session, ())})

    def subscribed(self, topic: str) -> list[str]:
        """The groups that have members which subscribed to a topic, by name."""
        return sorted(
            name
            for name, group in self._groups.items()
            if any(topic in member.topics for member in group.members.values())
        )

    def has_members(self, group: str) -> bool:
        """Whether the group has live members."""
        return group in self._groups

    def require_idle(self, group: str) -> None:
        """Raises GroupNotEmpty if the group has members."""
        held = self._groups.get(group)
        if held is not None:
            away = sum(entry.session is None for entry in held.members.values())
            kept = f" ({away} of them away: their places are kept for a while)" if away else ""
            raise GroupNotEmpty(
                f"group {group!r} has {len(held.members)} members at work{kept}, which would overwrite"
                " its offsets; stop them first"
            )

    def require_member(self, group: str, member: str, *, session: S) -> "_Member[S]":
        """Returns the member. Raises NotGroupMember unless it is one, by this session."""
        held = self._groups.get(group)
        entry = held.members.get(member) if held else None
        if entry is None or entry.session != session:
            raise NotGroupMember(
                f"{member!r} is no member of group {group!r} on this connection (it left, expired,"
                " or joined from elsewhere); join again"
            )
        return entry

    def _check_name(
        self, joining: JoinGroup, known: _Member[S] | None, client: str, now_ms: int
    ) -> None:
        if known is None or known.session is None or joining.away_ms < 0 or known.client == client:
            return
        silent_ms = now_ms - known.heard_at_ms
        if silent_ms < self._takeover_ms:
            raise NameTaken(
                f"group {joining.group!r} has a member {joining.member!r} at work, heard of"
                f" {silent_ms} ms ago; stop that one, or give this one another name"
            )

    def _check_room(self, group: _Group[S] | None, known: _Member[S] | None, session: S) -> None:
        if known is None and group is not None and len(group.members) >= MEMBERS_PER_GROUP_MAX:
            raise InvalidArgument(
                f"a group has at most {MEMBERS_PER_GROUP_MAX} members; let some leave first"
            )
        if known is not None and known.session == session:
            return
        if len(self._by_session.get(session, ())) >= MEMBERSHIPS_PER_SESSION_MAX:
            raise InvalidArgument(
                f"a connection has at most {MEMBERSHIPS_PER_SESSION_MAX} memberships; open another"
                " connection for more"
            )

    def _check_size(
        self, group: _Group[S] | None, known: _Member[S] | None, session: S, size: int
    ) -> None:
        before = known.size if known else 0
        if size <= before:
            return
        mine = known is not None and known.session == session
        for what, held, bytes_max in (
            ("all groups", self.size - before, self._bytes_max),
            ("this group", (group.size if group else 0) - before, GROUP_BYTES_MAX),
            (
                "this connection",
                self._session_sizes.get(session, 0) - (before if mine else 0),
                self._session_bytes_max,
            ),
        ):
            if held + size > bytes_max:
                raise InvalidArgument(
                    f"the members of {what} take {held} bytes with their topics, and there is room"
                    f" for {bytes_max}: subscribe to fewer topics, or let some leave first"
                )

    def _weigh(self, group: _Group[S], member: _Member[S], size: int) -> None:
        more, member.size = size - member.size, size
        self.size += more
        group.size += more
        if member.session is None:
            return
        left = self._session_sizes.get(member.session, 0) + more
        if left:
            self._session_sizes[member.session] = left
        else:
            self._session_sizes.pop(member.session, None)

    def _remove(self, gone: list[tuple[str, str]]) -> list[GroupChange[S]]:
        for name, member in gone:
            group = self._groups[name]
            entry = group.members.pop(member)
            self._weigh(group, entry, 0)
            self._forget_session(entry, name, member)
            if not group.members:
                del self._groups[name]
            self._on_left(name, member)
        # One change per group, however many of its members went at once.
        left = [name for name in dict.fromkeys(name for name, _ in gone) if name in self._groups]
        return [self._change(name, self._groups[name]) for name in left]

    def _take_away(self, name: str, member: str, now_ms: int) -> None:
        """Keeps a member's place without its session; all that it had on that one is over."""
        group = self._groups[name]
        entry = group.members[member]
        size = entry.size
        self._weigh(group, entry, 0)
        self._forget_session(entry, name, member)
        entry.session, entry.kept_until_ms = None, now_ms + entry.away_ms
        self._weigh(group, entry, size)
        self._on_left(name, member)

    def _forget_session(self, entry: _Member[S], group: str, member: str) -> None:
        if entry.session is None:
            return
        memberships = self._by_session[entry.session]
        memberships.discard((group, member))
        if not memberships:
            del self._by_session[entry.session]

    def _change(self, name: str, group: _Group[S], *, joined: str = "") -> GroupChange[S]:
        self._generation += 1
        group.generation = self._generation
        for entry in group.members.values():
            entry.shown = entry.held
        others = [entry.session for member, entry in group.members.items() if member != joined]
        view = GroupChanged(name, group.generation, _listed(group))
        return GroupChange(view, [one for one in dict.fromkeys(others) if one is not None])


def _agreed(joining: JoinGroup, group: "_Group[S] | None") -> Mapping[str, str]:
    """Returns the contract of a member that agrees with all others; equal ones are kept once."""
    contract: Mapping[str, str] = joining.contract
    if sum(len(what) + len(how) for what, how in contract.items()) > CONTRACT_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a member's contract has at most {CONTRACT_CHARACTERS_MAX} characters; subscribe to fewer"
            " topics with one consumer"
        )
    for name, other in group.members.items() if group else ():
        if name == joining.member or other.contract is contract:
            continue
        if other.contract == contract:
            contract = other.contract
            continue
        for what in sorted(contract.keys() & other.contract.keys()):
            if contract[what] != other.contract[what]:
                raise InconsistentGroup(
                    f"members of group {joining.group!r} have {what} {other.contract[what]!r}, and this"
                    f" one has {contract[what]!r}: it would lose messages for them, or they for it;"
                    " stop them first, or give this one a group of its own"
                )
    return contract


def _size(group: str, member: str, topics: list[str], held: list[HeldQueues]) -> int:
    """What a member takes in memory, about: a fair price, the same for what it says and for what is shown."""
    size = _MEMBER_BYTES + len(group) + len(member) + sum(map(len, topics))
    size += _TOPIC_BYTES * (len(topics) + 2 * len(held)) + 2 * sum(len(one.topic) for one in held)
    return size + _NUMBER_BYTES * sum(len(one.queue_ids) for one in held)


def _since(
    held: list[HeldQueues], before: Mapping[QueueRef, int], now_ms: int
) -> Mapping[QueueRef, int]:
    if not held:
        return _NEVER
    queues = (QueueRef(one.topic, number) for one in held for number in one.queue_ids)
    return {queue: before.get(queue, now_ms) for queue in queues}


def _listed(group: _Group[S]) -> list[GroupMember]:
    return [
        GroupMember(name, entry.topics, entry.shown)
        for name, entry in sorted(group.members.items())
    ]
