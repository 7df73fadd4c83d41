"""
Which brokers there are, as they say themselves. PURE: the time comes with each call.

    REGISTER ─▶ kept, until its connection ends or 10 s pass ─▶ ROUTES: leaders first

There is no truth here. Of a group's brokers the one in the latest epoch is believed, so a leader that was cut off is no
leader as soon as one broker knows a later election. What is out of date costs a client one more connection, because a
replica does not serve it.

Used by `name_server`, for which a connection is the owner of what was said over it.
"""

from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from headrace_mq._net.address import parse_address
from headrace_mq.errors import InvalidArgument, Overloaded
from headrace_mq.protocol.names.routes import (
    ALONE,
    LEADER,
    REPLICA,
    ROLES,
    BrokerRoute,
    Register,
    RoutesAnswer,
)

__all__ = ["ADDRESSES_MAX", "ADDRESS_CHARS_MAX", "NAME_CHARS_MAX", "RouteTable"]

# Of a cluster or group.
NAME_CHARS_MAX: Final = 128
# A host name has at most 253 characters, and a port has five digits.
ADDRESS_CHARS_MAX: Final = 262
# A broker listens at one address; a few more may lead there.
ADDRESSES_MAX: Final = 4

C = TypeVar("C", bound=Hashable)
# Cluster, group, name of the broker.
_Key = tuple[str, str, str]


class _Entry(NamedTuple, Generic[C]):
    owner: C
    said: Register
    at_ms: int


class RouteTable(Generic[C]):
    """The registrations of one name server.

    Args:
        registrations_max: more brokers are refused.
        expiry_ms: a broker that says nothing for this long is forgotten.
        not_ready_ms: how long after its start the table is not complete.
        now_ms: the time of the start.

    Attributes:
        expired: brokers that were forgotten because they said nothing.
    """

    def __init__(
        self, *, registrations_max: int, expiry_ms: int, not_ready_ms: int, now_ms: int
    ) -> None:
        self._registrations_max = registrations_max
        self._expiry_ms = expiry_ms
        self._ready_ms = now_ms + not_ready_ms
        self._groups: dict[tuple[str, str], dict[str, _Entry[C]]] = {}
        self._owned: dict[C, _Key] = {}
        self.expired = 0

    def __len__(self) -> int:
        return len(self._owned)

    def is_ready(self, now_ms: int) -> bool:
        """Whether every broker that runs has had the time to register."""
        return now_ms >= self._ready_ms

    def register(self, owner: C, said: Register, now_ms: int) -> bool:
        """Keeps what a broker says, in place of what it said before; returns whether it is new, or has another role.

        Raises:
            InvalidArgument: a name or an address cannot be one, or brokers that are no group have the same name of
                their group.
            Overloaded: there are too many brokers.
        """
        _check(said)
        self.expire(now_ms)
        key = (said.cluster, said.group, said.broker)
        group = self._groups.get(key[:2], {})
        before = group.get(said.broker)
        self._check_peers(said, [one.said for one in group.values() if one is not before])
        is_new = before is None and owner not in self._owned
        if is_new and len(self._owned) >= self._registrations_max:
            raise Overloaded(
                f"{self._registrations_max} brokers are registered, and this name server takes no more; stop some, or"
                " raise registrations_max"
            )
        if before is not None and before.owner != owner:
            del self._owned[before.owner]
        if self._owned.get(owner, key) != key:
            self.drop(owner)
        self._owned[owner] = key
        self._groups.setdefault(key[:2], {})[said.broker] = _Entry(owner, said, now_ms)
        return before is None or (before.said.role, before.said.epoch) != (said.role, said.epoch)

    @staticmethod
    def _check_peers(said: Register, others: list[Register]) -> None:
        if others and ALONE in {said.role, *(one.role for one in others)}:
            raise InvalidArgument(
                f"{others[0].broker} is registered as group {said.group} of cluster {said.cluster} too, and the two do not"
                " have the same messages: give each broker that runs alone a group of its own, with --group NAME"
            )

    def drop(self, owner: C) -> Register | None:
        """Forgets what was said over a connection, and returns it."""
        key = self._owned.pop(owner, None)
        if key is None:
            return None
        group = self._groups[key[:2]]
        said = group.pop(key[2]).said
        if not group:
            del self._groups[key[:2]]
        return said

    def expire(self, now_ms: int) -> None:
        """Forgets brokers that say nothing."""
        silent = [
            one.owner
            for group in self._groups.values()
            for one in group.values()
            if now_ms - one.at_ms >= self._expiry_ms
        ]
        self.expired += len(silent)
        for owner in silent:
            self.drop(owner)

    def routes(self, cluster: str, group: str, now_ms: int) -> RoutesAnswer:
        """Returns the brokers of a cluster and a group, sorted by group, leaders first; an empty name stands for all."""
        self.expire(now_ms)
        found = [
            route
            for (its_cluster, its_group), entries in sorted(self._groups.items())
            if cluster in {"", its_cluster} and group in {"", its_group}
            for route in _routes_of(list(entries.values()), now_ms)
        ]
        return RoutesAnswer(self.is_ready(now_ms), found)


def _routes_of(entries: list[_Entry[C]], now_ms: int) -> Iterator[BrokerRoute]:
    latest = max(one.said.epoch for one in entries)

    def role(said: Register) -> str:
        return REPLICA if said.role == LEADER and said.epoch < latest else said.role

    def place(one: _Entry[C]) -> tuple[bool, int, str]:
        return role(one.said) == REPLICA, -one.said.epoch, one.said.broker

    for number, one in enumerate(sorted(entries, key=place)):
        said = one.said
        # Two of one epoch cannot both lead, even if they say so.
        its_role = REPLICA if number and said.role == LEADER else role(said)
        yield BrokerRoute(
            said.cluster, said.group, said.broker, its_role, said.epoch, said.addresses, said.position,
            now_ms - one.at_ms,
        )  # fmt: skip


def _check(said: Register) -> None:
    for name in (said.cluster, said.group):
        if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise InvalidArgument(
                f"a cluster and a group have names of 1 to {NAME_CHARS_MAX} printable characters"
            )
    if said.role not in ROLES:
        raise InvalidArgument(f"a broker is {', '.join(ROLES)}, not {said.role[:NAME_CHARS_MAX]!r}")
    if said.epoch < 0 or said.position < 0:
        raise InvalidArgument("epoch and position must not be negative")
    if not 1 <= len(said.addresses) <= ADDRESSES_MAX:
        raise InvalidArgument(f"a broker has 1 to {ADDRESSES_MAX} addresses")
    for address in (said.broker, *said.addresses):
        if len(address) > ADDRESS_CHARS_MAX:
            raise InvalidArgument(f"an address has at most {ADDRESS_CHARS_MAX} characters")
        try:
            parse_address(address)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
