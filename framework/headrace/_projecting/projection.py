"""
The definition of a read model: one row model, one key, one fold per event type.

The same definition runs live and in Spark. Sits between: user code, which writes the folds, and
`folding`, which runs them. Pure: a fold gets the row and the event and returns the row.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel

from headrace._domain.message import DomainEvent, EventContext
from headrace._projecting.shape import RowShape
from headrace.errors import DefinitionError

__all__ = ["Projection"]

R = TypeVar("R", bound=BaseModel)
Fold = TypeVar("Fold", bound=Callable[..., Any])
KeyFunction = Callable[[DomainEvent, EventContext], str]

_FOLD_ARGUMENTS = 3
# 40: PostgreSQL's 63 bytes less what tables and groups append. No `__`: it parts the name from the
# number of a generation.
_NAME = re.compile(r"(?!.*__)[a-z][a-z0-9_]{0,39}")


def _aggregate_key(_event: DomainEvent, context: EventContext) -> str:
    return context.aggregate_id


class Projection(Generic[R]):
    """A read model kept in one table, a row per key.

    Args:
        name: the table's name: lower-case letters, digits and single `_`, at most 40 characters.
        row: a pydantic model; its fields become the columns (str, int, float, bool, Decimal,
            date, datetime, and optional ones of these).
        key: the field that is the primary key; a str.
        key_of: finds the key of the row that an event touches; the aggregate's id by default.

    Raises:
        DefinitionError: the name, key or row model is unusable; the sentence says why.
    """

    def __init__(
        self, name: str, *, row: type[R], key: str, key_of: KeyFunction | None = None
    ) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"projection {name!r}: begin with a letter and use lower-case letters a to z,"
                " digits and single '_', 40 characters at most"
            )
        if key not in row.model_fields or row.model_fields[key].annotation is not str:
            raise DefinitionError(
                f"projection {name}: key={key!r} must name a field of {row.__name__} of type str"
            )
        self.name = name
        self.row = row
        self.key = key
        self.shape = RowShape(name, row)
        self.keyed_by_aggregate = key_of is None
        self._key_of = key_of or _aggregate_key
        self._folds: dict[type[DomainEvent], Callable[[R | None, Any, EventContext], R | None]] = {}

    def fold(self, function: Fold) -> Fold:
        """Registers a fold for the event type of its second argument.

            @balances.fold
            def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
                ...

        It gets the key's row (None: there is none) and returns the new row (None: delete it). It
        must depend on its arguments alone, because a rebuild runs it again.
        """
        arguments = list(inspect.signature(function).parameters)
        hints = get_type_hints(function)
        event_type = hints.get(arguments[1]) if len(arguments) == _FOLD_ARGUMENTS else None
        if not (isinstance(event_type, type) and issubclass(event_type, DomainEvent)):
            raise DefinitionError(
                f"projection {self.name}: fold {function.__name__} takes (row, event, context) and"
                " annotates event with a DomainEvent class"
            )
        if event_type in self._folds:
            raise DefinitionError(
                f"projection {self.name} folds {event_type.__name__} twice;"
                f" remove {function.__name__} or {self._folds[event_type].__name__}"
            )
        self._folds[event_type] = function
        return function

    @property
    def event_types(self) -> frozenset[type[DomainEvent]]:
        """The event types that touch a row."""
        return frozenset(self._folds)

    def folds(self, event: DomainEvent) -> bool:
        """Whether the event touches a row."""
        return type(event) in self._folds

    def key_for(self, event: DomainEvent, context: EventContext) -> str:
        """Returns the key of the row that the event touches."""
        return self._key_of(event, context)

    def next_row(self, row: R | None, event: DomainEvent, context: EventContext) -> R | None:
        """Returns the row after the event, None for no row.

        Raises:
            DefinitionError: the fold returned a row of another type or of another key.
        """
        after = self._folds[type(event)](row, event, context)
        if after is None:
            return None
        key = self._key_of(event, context)
        if not isinstance(after, self.row) or getattr(after, self.key) != key:
            raise DefinitionError(
                f"projection {self.name}: the fold for {type(event).__name__} must return a"
                f" {self.row.__name__} with {self.key}={key!r}, or None"
            )
        return after

    def __repr__(self) -> str:
        return f"<Projection {self.name!r}>"
