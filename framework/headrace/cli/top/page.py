"""
The page of `headrace top`: what is shown of rates, in which order, and how much of it.

    head          the broker as a whole, in a few lines
    topics        ┐
    groups        │ tables, sorted by a key, the first rows of each
    connections   │
    replicas      ┘

Used by the command, for its live view and for `--once`. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from headrace.figures.rates import BrokerRates, ConnectionRates, GroupRates, TopicRates, TopRates
from headrace.figures.words import size

__all__ = ["KEYS", "SORTS", "TopPage", "TopTable", "page", "sorted_by"]

# What a table may be sorted by, and the key that chooses it.
SORTS: Final = ("messages", "bytes", "lag", "name")
KEYS: Final[Mapping[str, str]] = MappingProxyType({name[0]: name for name in SORTS})

R = TypeVar("R")


class TopTable(NamedTuple):
    """A table: its columns, its rows, and how many rows more there are."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    more: int = 0


class TopPage(NamedTuple):
    """What is shown: lines about the broker, and tables."""

    head: Sequence[str]
    sections: Sequence[TopTable]


def page(rates: TopRates, *, address: str, sort: str, rows_max: int) -> TopPage:
    """Returns what is shown of rates.

    Args:
        rates: of a broker.
        address: of the broker, for the first line.
        sort: one of `SORTS`.
        rows_max: rows of each table; further ones are counted.
    """
    title = f"headrace top {address}, over {rates.seconds:.1f} s, sorted by {sort}"
    head = [title, *(_head(rates.broker) if rates.broker else ())]
    if rates.replicas:
        head.append(f"replicas {len(rates.replicas)}")
    head += rates.denied
    sections = [
        _section(_TOPIC, map(_topic, sorted_by(sort, rates.topics)), rows_max),
        _section(_GROUP, map(_group, sorted_by(sort, rates.groups)), rows_max),
        _section(_CONNECTION, map(_connection, sorted_by(sort, rates.connections)), rows_max),
        _section(_REPLICA, map(_replica, rates.replicas), rows_max),
    ]
    return TopPage(head, [each for each in sections if each.rows])


def _section(columns: Sequence[str], rows: Iterable[Sequence[object]], rows_max: int) -> TopTable:
    held = list(rows)
    return TopTable(columns, held[:rows_max], max(0, len(held) - rows_max))


def sorted_by(sort: str, rows: Iterable[R]) -> list[R]:
    """Returns rows in an order: the busiest, or those that are furthest behind, first; or by their names.

    Args:
        sort: one of `SORTS`.
        rows: of topics, groups or connections.
    """
    by_name = sorted(rows, key=lambda row: str(row[0]))  # type: ignore[index]  # each is a tuple that begins with its name
    if sort == "name":
        return by_name
    # The sort is stable: rows of the same weight stay in the order of their names.
    return sorted(by_name, key=lambda row: -_weight(sort, row))


def _weight(sort: str, row: Any) -> float:
    weights: Mapping[type, Mapping[str, Callable[[Any], float]]] = {
        TopicRates: {
            "messages": lambda one: one.messages_in + one.messages_out,
            "bytes": lambda one: one.bytes_in + one.bytes_out,
            "lag": lambda one: one.messages,
        },
        GroupRates: {
            "messages": lambda one: one.messages_out,
            "bytes": lambda one: one.bytes_out,
            "lag": lambda one: one.lag or 0,
        },
        ConnectionRates: {
            "messages": lambda one: one.messages_in,
            "bytes": lambda one: one.bytes_in + one.bytes_out,
            "lag": lambda one: one.throttled_ms,
        },
    }
    return weights[type(row)][sort](row)


def _head(broker: BrokerRates) -> list[str]:
    machine = []
    if broker.cpu_percent is not None:
        machine.append(f"processor {broker.cpu_percent:.0f} %")
    if broker.memory_bytes is not None:
        machine.append(f"memory {size(broker.memory_bytes)}")
    if broker.disk_percent is not None and broker.disk_free_bytes is not None:
        free = size(broker.disk_free_bytes)
        machine.append(f"disk {broker.disk_percent:.0f} % full, {free} free")
    traffic = [
        f"in {broker.messages_in:,} messages/s, {size(broker.bytes_in)}/s",
        f"out {broker.messages_out:,} messages/s, {size(broker.bytes_out)}/s",
        f"held up {broker.throttled:,.1f} requests/s, {broker.held:,} wait",
    ]
    counts = [
        f"connections {broker.connections:,}", f"topics {broker.topics:,}", f"queues {broker.queues:,}",
        f"groups {broker.groups:,}", f"takes messages: {f'no: {broker.refuses}' if broker.refuses else 'yes'}",
    ]  # fmt: skip
    machine.append(f"logs {size(broker.log_bytes)}, +{size(broker.log_growth)}/s")
    return ["   ".join(parts) for parts in (traffic, machine, counts)]


_TOPIC: Final = ("topic", "queues", "messages", "in/s", "in bytes/s", "out/s", "out bytes/s")
_GROUP: Final = ("group", "members", "lag", "lag s", "grows/s", "out/s", "out bytes/s", "state")
_CONNECTION: Final = (
    "connection",
    "address",
    "roles",
    "groups",
    "in/s",
    "in bytes/s",
    "out bytes/s",
    "held up ms/s",
)
_REPLICA: Final = ("replica", "address", "in bytes/s", "out bytes/s")


def _topic(one: TopicRates) -> Sequence[object]:
    return (
        one.topic, one.queues, one.messages, float(one.messages_in), size(one.bytes_in),
        float(one.messages_out), size(one.bytes_out),
    )  # fmt: skip


def _group(one: GroupRates) -> Sequence[object]:
    return (
        one.group, one.members, one.lag, None if one.lag_ms is None else one.lag_ms / 1_000,
        None if one.change is None else f"{one.change:+,.1f}", float(one.messages_out), size(one.bytes_out),
        "paused" if one.paused else "",
    )  # fmt: skip


def _connection(one: ConnectionRates) -> Sequence[object]:
    return (
        one.client_id, one.address, one.roles, one.groups, float(one.messages_in), size(one.bytes_in),
        size(one.bytes_out), float(one.throttled_ms),
    )  # fmt: skip


def _replica(one: ConnectionRates) -> Sequence[object]:
    return one.client_id, one.address, size(one.bytes_in), size(one.bytes_out)
