"""
What an aggregate was: its state at any of its versions, replayed by its own class.

    version 3 ── events of 1, 2, 3 ──▶ Account.balance = 120

Snapshots are left alone: the state is what today's code makes of the events. Used by the console and by `headrace aggregate`;
reads the event store, and writes nothing.
"""

import asyncio
import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from headrace.domain.aggregate import Aggregate
from headrace.domain.decider import DeciderAggregate
from headrace.domain.message import DomainEvent
from headrace.errors import AggregateNotFound, DefinitionError
from headrace.stores.base import EventStore
from headrace.subjects.masked import masked

__all__ = ["Past", "PastState", "plain_state"]

# Versions that are read in one statement: between two of them others have their turn.
_PORTION: Final = 500
_NO_STATE: Final = frozenset({"id", "version", "_recorded"})
# Values inside of values that are written out; what is deeper stands as Python writes it.
_DEPTH_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PastState:
    """An aggregate at one of its versions.

    Attributes:
        aggregate_type: registered name of its class.
        aggregate_id: its id.
        version: which one.
        recorded_at: when the command of that version was recorded, UTC.
        command_id: which command made the version.
        state: the attributes of its class, or the state of its decider, as JSON values.
    """

    aggregate_type: str
    aggregate_id: str
    version: int
    recorded_at: datetime
    command_id: str
    state: Any


class Past:
    """The states that aggregates of an application had.

    Args:
        store: has their events.
        types: the classes, by their registered names.
        personal: show personal values; otherwise the events are replayed without them.
    """

    def __init__(
        self, store: EventStore, types: Mapping[str, type[Aggregate]], *, personal: bool = False
    ) -> None:
        self._store = store
        self._types = types
        self._personal = personal

    async def at(self, aggregate_id: str, versions: Collection[int]) -> list[PastState]:
        """Returns the states of an aggregate at some versions, the first version first, in one pass.

        Args:
            aggregate_id: whose.
            versions: which, from 1.

        Raises:
            AggregateNotFound: it has no such version; the sentence says which ones it has.
            DefinitionError: the application has no class of its type, or the class cannot replay an event.
            DamagedStream: an event of it cannot be read.
        """
        found: list[PastState] = []
        aggregate: Aggregate | None = None
        wanted, last = sorted(set(versions)), 0
        while len(found) < len(wanted):
            streams = await self._store.read_stream(
                aggregate_id, after_version=last, to_version=min(last + _PORTION, wanted[-1])
            )
            if not streams:
                break
            for stream in streams:
                assert stream.version is not None, "read_stream leaves rejections out"
                if aggregate is None:
                    aggregate = self._class_of(stream.aggregate_type)(aggregate_id)
                self._replay(aggregate, stream.version, stream.events)
                last = stream.version
                if last in wanted:
                    found.append(
                        PastState(
                            aggregate_type=stream.aggregate_type,
                            aggregate_id=aggregate_id,
                            version=last,
                            recorded_at=stream.recorded_at,
                            command_id=stream.command_id,
                            state=plain_state(aggregate),
                        )
                    )
            await asyncio.sleep(0)
        if len(found) < len(wanted):
            missing = next(each for each in wanted if each not in {one.version for one in found})
            has = f"it has the versions 1 to {last:,}" if last else "it has none"
            raise AggregateNotFound(f"{aggregate_id} has no version {missing:,}; {has}")
        return found

    def _class_of(self, aggregate_type: str) -> type[Aggregate]:
        found = self._types.get(aggregate_type)
        if found is None:
            raise DefinitionError(
                f"the application has no aggregate class {aggregate_type!r};"
                f" it has {', '.join(sorted(self._types)) or 'none'}"
            )
        return found

    def _replay(self, aggregate: Aggregate, version: int, events: tuple[DomainEvent, ...]) -> None:
        shown = events if self._personal else tuple(map(masked, events))
        try:
            aggregate.replay(version, shown)
        except DefinitionError:
            raise
        except Exception as error:
            raise DefinitionError(
                f"{type(aggregate).__name__} cannot replay version {version:,} of {aggregate.id}:"
                f" {type(error).__name__} in its @applies method"
            ) from error


def plain_state(aggregate: Aggregate) -> Any:
    """Returns the state of an aggregate as JSON values; sets in the order of their texts.

    Args:
        aggregate: as it is now; later changes do not touch what was returned.
    """
    if isinstance(aggregate, DeciderAggregate):
        return _plain(aggregate.state, 0)
    return {
        name: _plain(value, 0) for name, value in vars(aggregate).items() if name not in _NO_STATE
    }


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        # A number of an enum is one; its text, too.
        return to_jsonable_python(value)
    if depth >= _DEPTH_MAX:
        return repr(value)
    if isinstance(value, BaseModel):
        return _plain({name: getattr(value, name) for name in type(value).model_fields}, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return _plain({name: getattr(value, name) for name in names}, depth)
    if isinstance(value, Mapping):
        return {_name(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(each, depth + 1) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    return to_jsonable_python(value, fallback=repr)


def _name(key: Any) -> str:
    return key if isinstance(key, str) else str(to_jsonable_python(key, fallback=repr))
