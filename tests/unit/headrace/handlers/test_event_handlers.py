"""Which handlers an event has, and in which order they are called."""

from typing import Any

import pytest

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.handlers.event_handlers import EventHandlers


class Moved(DomainEvent):
    pass


class Sent(Moved):
    pass


class Received(Moved):
    pass


class Closed(DomainEvent):
    pass


def names(handlers: EventHandlers, event_type: type[DomainEvent]) -> list[list[str]]:
    return [[each.__name__ for each in level] for level in handlers.levels(event_type)]


def test_levels_begin_with_the_lowest_priority() -> None:
    handlers = EventHandlers("mail")

    async def first(event: Sent, context: EventContext) -> None: ...

    async def second(event: Sent, context: EventContext) -> None: ...

    async def beside(event: Sent, context: EventContext) -> None: ...

    handlers.add(second, priority=2)
    handlers.add(first, priority=-1)
    assert names(handlers, Sent) == [["first"], ["second"]]
    handlers.add(beside, priority=-1)
    assert names(handlers, Sent) == [["first", "beside"], ["second"]]


def test_a_handler_of_several_types_or_of_a_base_class_comes_once() -> None:
    handlers = EventHandlers("mail")

    async def both(event: Sent | Closed, context: EventContext) -> None: ...

    async def base(event: Moved, context: EventContext) -> None: ...

    async def twice(event: Moved | Sent, context: EventContext) -> None: ...

    async def exact(event: Received, context: EventContext) -> None: ...

    for handler in (both, base, twice, exact):
        handlers.add(handler, priority=0)
    assert names(handlers, Sent) == [["both", "base", "twice"]]
    assert names(handlers, Received) == [["base", "twice", "exact"]]
    assert names(handlers, Closed) == [["both"]]
    assert names(handlers, DomainEvent) == []
    assert handlers.event_types == {Sent, Closed, Moved, Received}


def test_a_handler_of_another_form_is_refused() -> None:
    async def alone(event: Sent) -> None: ...

    def blocking(event: Sent, context: EventContext) -> None: ...

    async def untyped(event, context) -> None: ...  # type: ignore[no-untyped-def]  # that is the point

    async def mixed(event: Sent | int, context: EventContext) -> None: ...

    for handler in (alone, blocking, untyped, mixed):
        wrong: Any = handler
        with pytest.raises(DefinitionError, match="write it as `async def f"):
            EventHandlers("mail").add(wrong, priority=0)


@pytest.mark.parametrize("name", ["", "Mail", "mail:1", "9mail", "m" * 31])
def test_a_name_that_no_group_can_have_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="start with a lower-case letter"):
        EventHandlers(name)
