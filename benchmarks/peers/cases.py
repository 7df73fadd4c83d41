"""What every system is asked to do: workloads, sizes of messages, who takes part."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["BODIES", "CASES", "HOLDERS", "SYSTEMS", "Case", "chosen"]

SYSTEMS = [
    "headrace:always", "kafka:always", "redis_streams:always", "nats_jetstream:always",
    "rabbitmq_quorum:always", "postgresql_table:always",
    "headrace:interval", "kafka:default", "redis_streams:everysec", "nats_jetstream:default",
    "postgresql_table:off",
]  # fmt: skip
# Who holds a backlog: each as it takes one in soonest, since memory is what is asked for.
HOLDERS = [
    "headrace:always", "kafka:default", "redis_streams:everysec", "nats_jetstream:default",
    "rabbitmq_quorum:always", "postgresql_table:off",
]  # fmt: skip
SMALL, LARGE = 100, 1024
BODIES = (SMALL, LARGE)


class Case(NamedTuple):
    """The same work for every system."""

    workload: str
    name: str
    task: str
    asked: Mapping[str, Any]
    processes: int = 1
    bodies: Sequence[int] = BODIES


MANY, MORE = {"size": 100, "tasks": 8}, {"size": 100, "tasks": 32}
CASES = [
    Case("W1", "send_many of 100", "send_many", MANY),
    Case("W1", "send_many of 100, 32 at a time", "send_many", MORE),
    Case("W1", "send_many of 1,000", "send_many", {"size": 1_000, "tasks": 8}, bodies=(SMALL,)),
    Case("W1", "send from 1,000 tasks", "send", {"tasks": 1_000}, bodies=(SMALL,)),
    Case("W1", "send, one at a time", "send", {"tasks": 1}, bodies=(SMALL,)),
    Case("W2", "4 x send_many of 100", "send_many", MANY, 4),
    Case("W2", "4 x send_many of 100, 32 at a time", "send_many", MORE, 4),
    Case("W3", "a backlog, acknowledged", "drain", {}),
    # Half of it would leave five messages in the slowest hundredth.
    Case("W4", "end to end at 500/s", "pace", {"per_second": 500, "seconds": 2}, bodies=(SMALL,)),
    Case("W5", "producing and consuming", "both", MANY),
]


def chosen(
    workloads: Sequence[str], word: str, bodies: Sequence[int] | None
) -> list[tuple[Case, int]]:
    """The cases of some workloads, all without one, whose names have a word, by size of a message.

    Sizes that are asked for are measured in every case.
    """
    found = [
        case
        for case in CASES
        if (not workloads or case.workload in workloads) and word in case.name
    ]
    return [
        (case, body)
        for body in (bodies or BODIES)
        for case in found
        if bodies or body in case.bodies
    ]
