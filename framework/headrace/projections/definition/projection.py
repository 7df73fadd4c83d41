"""
`Projection`, the definition of a read model: a row model, a key, and how each event changes a row.

The same definition runs live, in a rebuild and in Spark. Applications make projections, and `fold` runs
them. Pure: the next row depends on the row and the event alone.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel

from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import CONTEXT, Term
from headrace.projections.definition.index import Index, check_indexes
from headrace.projections.definition.key_form import KeyForm
from headrace.projections.definition.keys import AGGREGATE_KEY, Key, KeyOf, as_key
from headrace.projections.definition.rules import (
    CompiledRule,
    FoldRule,
    Rule,
    SummaryRule,
    event_types_of,
)
from headrace.projections.definition.shape import RowShape
from headrace.projections.definition.summaries import Summary
from headrace.subscriptions.handler_match import nearest

__all__ = ["Projection", "projection_group", "version_of"]

R = TypeVar("R", bound=BaseModel)
Fold = TypeVar("Fold", bound=Callable[..., Any])

# 40: PostgreSQL's 63 bytes less what tables and groups append. No `__`: it parts the name from the
# number of a generation.
_NAME = re.compile(r"(?!.*__)[a-z][a-z0-9_]{0,39}")
_VERSION_MAX = 999
# What the database keeps.
_FINGERPRINT_CHARACTERS = 64
_FOLD_ARGUMENTS = {3, 4}
_HANDLER_ARGUMENTS = {3}


class Projection(Generic[R]):
    """A read model kept in one table, a row per key.

    Args:
        name: the table's name: lower-case letters, digits and single `_`, at most 40 characters.
        row: a pydantic model; its fields become the columns. A column holds str, int, float, bool,
            Decimal, date, datetime, UUID, bytes, Literal or Enum; list, dict and models are stored
            as JSON; each may be optional.
        key: the field that is the primary key, or a tuple of several; each a str, int or UUID.
        key_of: which rows an event touches, unless a fold says otherwise; by default the row of the
            aggregate's id. It is a field of the event by name, a term such as
            `day("context.recorded_at")`, or a function of the event, or of event and context, that
            returns a key or a list of keys. For a key of several fields: a tuple of fields and
            terms, or a function that returns tuples.
        indexes: in addition to the key's; a rebuild, or `headrace projection index`, makes new ones.
        version: raise it when you correct a fold: one version never folds the rows of another, and
            the old rows stay readable until the new ones take their place. 1 to 999.

    Attributes:
        key: the names of the key's fields, joined by commas.
        key_form: the form of its keys.
        indexes: the indexes of each table.
        fingerprint: stays the same while version and columns do; 64 characters at most.

    Raises:
        DefinitionError: the version, name, key or row model is unusable; the sentence says why.
    """

    def __init__(
        self,
        name: str,
        *,
        row: type[R],
        key: str | tuple[str, ...],
        key_of: KeyOf | None = None,
        version: int = 1,
        indexes: Sequence[Index] = (),
    ) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"projection {name!r}: begin with a letter and use lower-case letters a to z,"
                " digits and single '_', 40 characters at most"
            )
        if not (isinstance(row, type) and issubclass(row, BaseModel)):
            raise DefinitionError(
                f"projection {name}: row={row!r} must be a class derived from pydantic.BaseModel"
            )
        names = key if isinstance(key, tuple) else (key,)
        if len(set(names)) < len(names) or not set(names) <= row.model_fields.keys():
            raise DefinitionError(
                f"projection {name}: key={key!r} must name a field of {row.__name__}, or several, each"
                " of type str, int or UUID"
            )
        if type(version) is not int or not 1 <= version <= _VERSION_MAX:
            raise DefinitionError(
                f"projection {name}: version={version!r} must be a number from 1 to {_VERSION_MAX}"
            )
        self.name = name
        self.version = version
        self.row = row
        self.key = ", ".join(names)
        self.shape = RowShape(name, row, names)
        fields = {field.name: field for field in self.shape.fields}
        self.key_form = KeyForm(name, [fields[each] for each in names])
        mark = "" if version == 1 else f"{version}:"
        self.fingerprint = f"{mark}{self.shape.fingerprint}"[:_FINGERPRINT_CHARACTERS]
        check_indexes(name, self.shape.fields, indexes)
        self.indexes = tuple(indexes)
        # A key of several fields is said by each rule, or here.
        self._key_of = None if key_of is None and len(names) > 1 else self._as_key(key_of)
        self._rules: dict[type[DomainEvent], list[Rule[R]]] = {}
        self._handlers: dict[type[DomainEvent], list[Callable[..., None]]] = {}
        # By the type of an event that came; made at the first one.
        self._compiled: dict[type[DomainEvent], tuple[CompiledRule[R], ...]] = {}

    def on(
        self,
        *event_types: type[DomainEvent],
        key: KeyOf | None = None,
        where: Term | None = None,
        **columns: Summary,
    ) -> None:
        """Declares what columns keep of events; a rebuild computes it without the events' models.

            balances.on(Deposited, balance=sum_("amount"), deposits=count())
            balances.on(Withdrawn, balance=sum_(-field("amount")))

        The first event of a key makes its row, with the row model's defaults; numbers without a
        default begin at 0. You can call `on` several times for the same event.

        Args:
            event_types: the events; subclasses count too, unless they have rules of their own.
            key: which rows these events touch, instead of the projection's `key_of`.
            where: a condition; events for which it does not hold are left out.
            columns: what each of the row's columns keeps.

        Raises:
            DefinitionError: a column cannot keep it; the sentence says why.
        """
        self._add(
            event_types,
            SummaryRule(
                projection=self.name,
                shape=self.shape,
                form=self.key_form,
                key=self._key(key),
                where=where,
                columns=columns,
            ),
        )

    @overload
    def fold(self, function: Fold) -> Fold: ...

    @overload
    def fold(self, *, key: KeyOf) -> Callable[[Fold], Fold]: ...

    def fold(
        self, function: Fold | None = None, *, key: KeyOf | None = None
    ) -> Fold | Callable[[Fold], Fold]:
        """Registers a fold for the event type of its second argument.

            @balances.fold
            def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
                ...

        The fold gets the key's row (None: there is none) and returns the new row (None: delete it).
        It must depend on its arguments alone, because a rebuild runs it again. `A | B` registers it
        for both events; a base class also for its subclasses, unless they have folds of their own.

            @balances.fold(key=lambda event: [event.source, event.target])
            def moved(row: Balance | None, event: Moved, context: EventContext, key: str) -> Balance:
                ...

        This fold is called once per key. The key is its fourth argument, which you may leave out.

        Raises:
            DefinitionError: the arguments are wrong, or the event type already has a fold for this key.
        """

        def register(fold: Fold) -> Fold:
            event_types = event_types_of(self.name, "fold", fold, _FOLD_ARGUMENTS)
            rule = FoldRule(
                projection=self.name,
                shape=self.shape,
                form=self.key_form,
                key=self._key(key),
                fold=fold,
            )
            self._refuse_second(event_types, rule)
            self._add(event_types, rule)
            return fold

        return register if function is None else register(function)

    def with_session(self, handler: Fold) -> Fold:
        """Registers a handler that writes to your own tables, in the transaction of the rows.

            @balances.with_session
            def noted(session: Session, event: Deposited, context: EventContext) -> None:
                session.execute(insert(notes).values(event=context.event_id))

        The handler is called for each event in order, after the rows of its batch are written. It must
        not commit or roll back. You cannot rebuild such a projection, because a rebuild cannot know
        what its handlers have written before.

        Raises:
            DefinitionError: the arguments are wrong.
        """
        for event_type in event_types_of(self.name, "handler", handler, _HANDLER_ARGUMENTS):
            self._handlers.setdefault(event_type, []).append(handler)
        self._compiled.clear()
        return handler

    def has_columns_of(self, fingerprint: str) -> bool:
        """Whether rows with a fingerprint have this projection's columns, of any version."""
        return self.shape.fingerprint.startswith(fingerprint.rpartition(":")[2])

    @property
    def event_types(self) -> frozenset[type[DomainEvent]]:
        """The event types that have rules or handlers; a base class stands for its subclasses."""
        return frozenset(self._rules.keys() | self._handlers.keys())

    @property
    def keyed_by_aggregate(self) -> bool:
        """Whether all events of a row belong to one aggregate."""
        return all(rule.key is AGGREGATE_KEY for rules in self._rules.values() for rule in rules)

    @property
    def summary_rules(self) -> tuple[SummaryRule[R], ...] | None:
        """The declared folds, in order; None if one of the folds is a Python function."""
        rules = dict.fromkeys(rule for rules in self._rules.values() for rule in rules)
        declared = tuple(rule for rule in rules if isinstance(rule, SummaryRule))
        return declared if len(declared) == len(rules) else None

    @property
    def context_read(self) -> frozenset[str] | None:
        """The fields of contexts that folds read, by name; None if a Python function may read any."""
        found: set[str] = set()
        for rule in self.summary_rules or ():
            read = rule.fields_read
            if read is None:
                return None
            found |= {path.removeprefix(CONTEXT) for path in read if path.startswith(CONTEXT)}
        return None if self.summary_rules is None else frozenset(found)

    def folds(self, event: DomainEvent) -> bool:
        """Whether the event may touch a row."""
        return self.reacts_to(type(event))

    def reacts_to(self, event_type: type[DomainEvent]) -> bool:
        """Whether events of exactly this type may touch a row."""
        return bool(self.rules_for(event_type))

    def check(self, event_type: type[DomainEvent]) -> None:
        """Compiles what an event type does.

        Raises:
            DefinitionError: the event has no such field, or the field has another type.
        """
        self.rules_for(event_type)

    def rules_for(self, event_type: type[DomainEvent]) -> Sequence[CompiledRule[R]]:
        """Returns the rules for events of exactly this type, in order of definition."""
        compiled = self._compiled.get(event_type)
        if compiled is None:
            rules = nearest(self._rules, event_type) or ()
            compiled = tuple(rule.compile(event_type) for rule in rules)
            self._compiled[event_type] = compiled
        return compiled

    def rules_in_place(
        self, event_type: type[DomainEvent], *, stored: bool
    ) -> Sequence[CompiledRule[R]]:
        """Returns the same for rows that are changed where they are; see `compile_in_place`.

        For projections of nothing but declared folds, which have `summary_rules`.
        """
        return tuple(
            rule.compile_in_place(event_type, stored=stored)
            for rule in self.declared_for(event_type)
            if isinstance(rule, SummaryRule)
        )

    def declared_for(self, event_type: type[DomainEvent]) -> Sequence[Rule[R]]:
        """Returns the rules of `rules_for` as they were defined."""
        return nearest(self._rules, event_type) or ()

    @property
    def has_handlers(self) -> bool:
        """Whether the projection has handlers of `with_session`."""
        return bool(self._handlers)

    def handlers_for(self, event_type: type[DomainEvent]) -> Sequence[Callable[..., None]]:
        """Returns the functions of `with_session` for events of exactly this type."""
        return nearest(self._handlers, event_type) or ()

    def _key(self, key: KeyOf | None) -> Key:
        """Returns the key of a rule: its own, or the projection's."""
        own = self._key_of if key is None else None
        return self._as_key(key) if own is None else own

    def _as_key(self, key: KeyOf | None) -> Key:
        try:
            return as_key(key, self.key_form)
        except DefinitionError as error:
            raise DefinitionError(f"projection {self.name}: {error}") from error

    def _add(self, event_types: Iterable[type[DomainEvent]], rule: Rule[R]) -> None:
        rule.check(event_types)
        for event_type in event_types:
            self._rules.setdefault(event_type, []).append(rule)
        self._compiled.clear()

    def _refuse_second(self, event_types: Iterable[type[DomainEvent]], new: FoldRule[R]) -> None:
        for event_type in event_types:
            for rule in self._rules.get(event_type, ()):
                if isinstance(rule, FoldRule) and repr(rule.key) == repr(new.key):
                    raise DefinitionError(
                        f"projection {self.name} folds {event_type.__name__} twice;"
                        f" remove {new.name} or {rule.name}"
                    )

    def __repr__(self) -> str:
        return f"<Projection {self.name!r}>"


def version_of(fingerprint: str) -> int:
    """Returns the version of a projection that a fingerprint is of."""
    version, colon, _ = fingerprint.partition(":")
    return int(version) if colon else 1


def projection_group(app_name: str, name: str, version: int = 1) -> str:
    """The consumer group in which the runners of a projection's version share the event topic.

    Each version has its own group, because runners of a version that waits must hold no queue.
    """
    group = f"{app_name}.projection.{name}"
    return group if version == 1 else f"{group}.v{version}"
