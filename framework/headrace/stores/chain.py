"""
Decides which streams of an append may be stored, given what is stored already. Pure.

Used by the adapters, which look up what is stored; returns outcomes of the `EventStore` port.
"""

from collections.abc import Collection, Mapping, Sequence

from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome

__all__ = ["decide", "expected_heads"]


def decide(
    streams: Sequence[EventStream],
    heads: Mapping[str, int],
    commands: Collection[tuple[str, str]],
) -> list[AppendOutcome]:
    """Returns each stream's outcome, in order.

    Args:
        streams: what is to be appended.
        heads: stored version of each aggregate among them; one that is left out has none.
        commands: the (aggregate id, command id) pairs among them that are stored.
    """
    next_versions: dict[str, int] = {}
    broken: set[str] = set()
    accepted: set[tuple[str, str]] = set()
    outcomes = []
    for stream in streams:
        aggregate_id = stream.aggregate_id
        command = (aggregate_id, stream.command_id)
        next_version = next_versions.get(aggregate_id, heads.get(aggregate_id, 0) + 1)
        if aggregate_id in broken:
            # It was decided on top of a stream that is not stored.
            outcome = AppendOutcome.VERSION_CONFLICT
        elif command in commands or command in accepted:
            outcome = AppendOutcome.DUPLICATE_COMMAND
        elif stream.version not in {None, next_version}:
            outcome = AppendOutcome.VERSION_CONFLICT
        else:
            outcome = AppendOutcome.APPENDED
        if outcome is AppendOutcome.APPENDED:
            accepted.add(command)
            if stream.version is not None:
                next_versions[aggregate_id] = next_version + 1
        else:
            broken.add(aggregate_id)
        outcomes.append(outcome)
    return outcomes


def expected_heads(streams: Sequence[EventStream]) -> dict[str, int] | None:
    """Returns the stored versions with which every stream could be appended.

    An aggregate of which there are only rejections is left out. None: the streams contradict each
    other, so that no stored versions would do.
    """
    heads: dict[str, int] = {}
    next_versions: dict[str, int] = {}
    commands: set[tuple[str, str]] = set()
    for stream in streams:
        command = (stream.aggregate_id, stream.command_id)
        if command in commands:
            return None
        commands.add(command)
        if stream.version is None:
            continue
        heads.setdefault(stream.aggregate_id, stream.version - 1)
        if stream.version != next_versions.get(stream.aggregate_id, stream.version):
            return None
        next_versions[stream.aggregate_id] = stream.version + 1
    return heads
