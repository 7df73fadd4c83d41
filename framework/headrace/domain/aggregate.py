"""
Aggregates: plain classes that decide in methods and change state only when events are applied.

Used by applications, which subclass `Aggregate`, and by `commands`, which collects the events that
a command recorded. Pure: no I/O, no clock.
"""

import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, TypeVar, get_type_hints

from headrace.domain.identity import id_text
from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError

__all__ = ["Aggregate", "applies"]

F = TypeVar("F", bound=Callable[..., None])
_APPLIES = "__headrace_applies__"


def applies(method: F) -> F:
    """Marks a method as the one that changes state for the event type of its only argument.

        @applies
        def _deposited(self, event: Deposited) -> None:
            self.balance += event.amount

    A method for a base class of events takes its subclasses too, unless they have methods of their
    own. It must change the aggregate's attributes and nothing else: it runs again on every load.
    """
    setattr(method, _APPLIES, True)
    return method


class Aggregate:
    """A thing with an id, a state, and rules that always hold.

    Subclass it: set the initial state in `initial_state`, decide in methods that call `record`,
    change state in `@applies` methods. Class arguments:

    - `name`: the stable name that is stored (default: the class name);
    - `state_version` (default 1): raise it when the meaning of the attributes changes, so that
      old snapshots are dropped;
    - `snapshot_events`: how many events lie between two snapshots (default: the setting of that
      name; 0: no snapshots).

    Attributes:
        id: the aggregate's id as text; you may pass a value of any type.
        version: the number of commands whose events have been applied; 0 before the first.
    """

    aggregate_name: ClassVar[str] = ""
    state_version: ClassVar[int] = 1
    snapshot_events: ClassVar[int | None] = None
    _appliers: ClassVar[dict[type[DomainEvent], str]] = {}

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        state_version: int = 1,
        snapshot_events: int | None = None,
    ) -> None:
        super().__init_subclass__()
        if snapshot_events is not None and snapshot_events < 0:
            raise DefinitionError(
                f"{cls.__name__}: snapshot_events={snapshot_events}; give a number of events, or 0 for no"
                " snapshots"
            )
        cls.snapshot_events = snapshot_events
        cls.aggregate_name = name or cls.__name__
        cls.state_version = state_version
        cls._appliers = dict(cls._appliers) | _find_appliers(cls)

    def __init__(self, id: Hashable) -> None:  # noqa: A002 - the field's own name
        self.id = id_text("an aggregate id", id)
        self.version = 0
        self._recorded: list[DomainEvent] = []
        self.initial_state()

    def initial_state(self) -> None:
        """Sets the attributes of an aggregate without events; override it."""

    @classmethod
    def event_types(cls) -> frozenset[type[DomainEvent]]:
        """The event types that the class knows how to apply."""
        return frozenset(cls._appliers)

    @property
    def recorded(self) -> tuple[DomainEvent, ...]:
        """The events decided since the last `accept`, oldest first."""
        return tuple(self._recorded)

    def record(self, event: DomainEvent) -> None:
        """Applies an event that the aggregate has just decided, and keeps it for storing.

        Raises:
            DefinitionError: no `@applies` method takes this event type.
        """
        self._apply(event)
        self._recorded.append(event)

    def accept(self) -> None:
        """Counts the recorded events as one new version and forgets them."""
        if self._recorded:
            self.version += 1
            self._recorded.clear()

    def replay(self, version: int, events: Iterable[DomainEvent]) -> None:
        """Applies the stored events of one version.

        Raises:
            ValueError: `version` is not the one after the aggregate's own.
        """
        if version != self.version + 1:
            raise ValueError(
                f"{self.aggregate_name} {self.id} is at version {self.version}"
                f" and cannot replay version {version}"
            )
        for event in events:
            self._apply(event)
        self.version = version

    def _apply(self, event: DomainEvent) -> None:
        method = self._appliers.get(type(event)) or self._inherited_applier(type(event))
        if method is None:
            raise DefinitionError(
                f"{type(self).__name__} has no @applies method for {type(event).__name__};"
                " add one, even if it changes nothing"
            )
        getattr(self, method)(event)

    def _inherited_applier(self, event_type: type[DomainEvent]) -> str | None:
        """The method for the nearest base class of an event that has one."""
        found = (self._appliers.get(base) for base in event_type.__mro__[1:])
        return next((method for method in found if method is not None), None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} version {self.version}>"


def _find_appliers(cls: type[Aggregate]) -> dict[type[DomainEvent], str]:
    found: dict[type[DomainEvent], str] = {}
    for name, member in vars(cls).items():
        if not getattr(member, _APPLIES, False):
            continue
        event_type = _event_type_of(cls, name, member)
        if event_type in found:
            raise DefinitionError(
                f"{cls.__name__} applies {event_type.__name__} twice:"
                f" in {found[event_type]} and in {name}"
            )
        found[event_type] = name
    return found


def _event_type_of(cls: type[Aggregate], name: str, method: Any) -> type[DomainEvent]:
    arguments = list(inspect.signature(method).parameters)
    hint = get_type_hints(method).get(arguments[1]) if len(arguments) == 2 else None
    if not (isinstance(hint, type) and issubclass(hint, DomainEvent)):
        raise DefinitionError(
            f"{cls.__name__}.{name}: an @applies method takes self and one argument annotated"
            " with a DomainEvent class, and no resources: its state is made of events alone"
        )
    return hint
