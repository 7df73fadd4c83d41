"""A part that waits in vain is found before anything runs."""

from typing import Any

import pytest

from headrace.domain.message import EventContext
from headrace.errors import DefinitionError
from headrace.handlers.event_handlers import EventHandlers
from headrace.processes.process_manager import ProcessManager
from headrace.watch.unsent_messages import check_listeners


@pytest.fixture
def listeners(domain: Any, totals: Any, make_process: Any) -> list[Any]:
    """One of each kind; together they wait for all that there is."""
    handlers = EventHandlers("mail")

    @handlers_add(handlers)
    async def noted(event: domain.Noted, context: EventContext) -> None: ...

    manager = ProcessManager("copying")

    @manager.on_rejection
    def refused(command: domain.Add, rejection: Any) -> list[Any]:
        return []

    return [totals, handlers, manager, make_process()]


def handlers_add(handlers: EventHandlers) -> Any:
    return lambda function: handlers.add(function, priority=0)


def test_parts_whose_messages_are_sent_are_accepted(domain: Any, listeners: Any) -> None:
    events = {domain.Added, domain.Cleared, domain.Noted}
    check_listeners("shop", listeners, events=events, commands={domain.Add})


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("Cleared", "projection totals folds Cleared, which no aggregate of shop applies"),
        ("Noted", "an event handler of mail waits for Noted, which no aggregate of shop applies"),
        ("Add", "process manager copying reacts to the rejection of Add, which has no handler"),
    ],
)
def test_a_part_that_waits_in_vain_is_named(
    domain: Any, listeners: Any, missing: str, sentence: str
) -> None:
    gone = getattr(domain, missing)
    events = {domain.Added, domain.Cleared, domain.Noted} - {gone}
    with pytest.raises(DefinitionError, match=sentence):
        check_listeners("shop", listeners, events=events, commands={domain.Add} - {gone})


def test_a_process_that_waits_in_vain_is_named(domain: Any, make_process: Any) -> None:
    with pytest.raises(DefinitionError, match="process manager copies reacts to"):
        check_listeners("shop", [make_process()], events={domain.Added}, commands={domain.Add})
