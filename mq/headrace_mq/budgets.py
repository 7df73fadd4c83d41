"""
What the clients of a broker may take up of it, together and each: the budgets of `BrokerSettings`.

A broker cannot know who means well. So whatever clients can pile up has a bound for the process, and
what one address may have of it is less than all. Values only, as in `settings`.
"""

import msgspec

__all__ = ["BudgetSettings"]

MIB = 1 << 20


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds on what clients pile up, over all connections; part of `BrokerSettings`."""

    # One file descriptor each; far below the usual 65,536 of a service. Fewer, with a warning, where
    # the system grants the broker fewer open files.
    connections_max: int = 4_096
    # Connections of one address (this machine's too), so that one cannot take them all; a quarter.
    connections_per_address_max: int = 1_024
    # Connections that have not said HELLO yet; above it the one that is silent for longest goes. Clients
    # say it at once.
    connections_before_hello_max: int = 256
    # Bytes of requests that have not arrived as a whole, or wait for their turn, over all connections;
    # above it the connection that has waited longest with one is closed. Sixty of the largest frames.
    requests_bytes_max: int = 256 * MIB
    # Bytes of answers that clients do not read, over all connections; above it the connection with
    # most of them is closed. Sixteen clients that take nothing at all.
    answers_bytes_max: int = 256 * MIB
    # Memory for members of groups, their topics and what they hold, over all connections; above it
    # no member joins. Some 100,000 members with a topic.
    memberships_bytes_max: int = 64 * MIB
    # Of that, what the members of one connection take: a thousand with a few topics each.
    memberships_bytes_per_connection_max: int = 4 * MIB
    # Queues that parked fetches wait at, over all connections; above it a fetch is answered at once.
    # Some 300 bytes each.
    parked_queues_max: int = 262_144
    # New queues, and offsets of groups in further queues, that the clients of one address may make in a
    # minute; 0: as many as they will. A broker has 65,536 and 200,000: one client that goes wild needs a
    # quarter of an hour to use them up, and somebody can look.
    address_queues_per_minute: int = 4_200
    address_offsets_per_minute: int = 18_000
    # File descriptors kept for segments, indexes and other files, which no connection gets.
    descriptors_reserved: int = 256

    def __post_init__(self) -> None:
        for name in BudgetSettings.__struct_fields__:
            least = 0 if name.startswith("address_") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")
