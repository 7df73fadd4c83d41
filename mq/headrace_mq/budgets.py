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
    # New queues, and offsets of groups in further queues, that the clients of one address may make in a
    # minute; 0: as many as they will. A broker has 65,536 and 200,000: one client that goes wild needs a
    # quarter of an hour to use them up, and somebody can look.
    address_queues_per_minute: int = 4_200
    address_offsets_per_minute: int = 18_000

    def __post_init__(self) -> None:
        for name in BudgetSettings.__struct_fields__:
            least = 0 if name.startswith("address_") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")
