"""Each kind of what reacts to events gets its own loop."""

from typing import Any

from headrace.event_runners import event_runner
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.runner import EventHandlerRunner
from headrace.processes.process_manager import ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
from headrace.processes.process_runner import ProcessRunner
from tests.unit.headrace.readers import *  # noqa: F403 - fixtures are found by name


def test_processes_process_managers_and_event_handlers_have_loops_of_their_own(
    sqlite_models: Any, store: Any, transport: Any, serializer: Any, settings: Any,
    make_process: Any,
) -> None:  # fmt: skip
    parts = {
        "read_models": sqlite_models,
        "store": store,
        "app_name": "shop",
        "transport": transport,
        "serializer": serializer,
        "settings": settings,
    }
    with_states: Any = event_runner(make_process(), bus=None, **parts)
    without: Any = event_runner(ProcessManager("other"), bus=None, **parts)
    assert isinstance(with_states, ProcessRunner)
    assert isinstance(without, ProcessManagerRunner)
    handlers: Any = event_runner(EventHandlers("mail"), **parts)
    assert isinstance(handlers, EventHandlerRunner)
