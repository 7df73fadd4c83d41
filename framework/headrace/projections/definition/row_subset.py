"""
A projection limited to some of its keys, with the same folds.

Used by a rebuild of some rows, in place of the whole projection. Pure.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from headrace.domain.message import DomainEvent, EventContext
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.rules import CompiledRule

__all__ = ["narrowed"]

R = TypeVar("R", bound=BaseModel)
Keys = Callable[[Any, EventContext], tuple[str, ...]]


def narrowed(projection: Projection[R], only: Collection[str]) -> Projection[R]:
    """Returns a projection whose events touch the rows of these keys alone."""
    return _Narrowed(projection, frozenset(only))


class _Narrowed(Projection[R]):
    """Shares the definition of a whole projection, and compiles it for some keys."""

    def __init__(self, whole: Projection[R], only: frozenset[str]) -> None:
        self.__dict__.update(whole.__dict__)
        self._whole = whole
        self._only = only
        self._compiled = {}

    @property
    def context_read(self) -> None:
        """None: the keys of every event are computed, and that may read any field of a context."""
        return None

    def rules_for(self, event_type: type[DomainEvent]) -> Sequence[CompiledRule[R]]:
        """Returns the rules for events of exactly this type, limited to these keys."""
        compiled = self._compiled.get(event_type)
        if compiled is None:
            compiled = self._narrow(self._whole.rules_for(event_type))
            self._compiled[event_type] = compiled
        return compiled

    def rules_in_place(
        self, event_type: type[DomainEvent], *, stored: bool
    ) -> Sequence[CompiledRule[R]]:
        """Returns the same, changing rows where they are."""
        return self._narrow(self._whole.rules_in_place(event_type, stored=stored))

    def _narrow(self, rules: Sequence[CompiledRule[R]]) -> tuple[CompiledRule[R], ...]:
        return tuple(
            replace(rule, keys=_among(rule.keys, self._only), by_aggregate=False) for rule in rules
        )


def _among(keys: Keys, only: frozenset[str]) -> Keys:
    return lambda event, context: tuple(key for key in keys(event, context) if key in only)
