"""Each kind of process manager gets its own loop."""

from typing import Any

from headrace._projecting.instance_runner import ProcessRunner
from headrace._projecting.process_runner import ProcessManagerRunner
from headrace._projecting.reacting import reaction
from headrace._projecting.workflows import ProcessManager


def test_a_process_gets_a_loop_with_states_and_a_process_manager_one_without(
    sqlite_models: Any, store: Any, transport: Any, serializer: Any, settings: Any,
    make_process: Any,
) -> None:  # fmt: skip
    parts = {
        "read_models": sqlite_models,
        "store": store,
        "app_name": "shop",
        "transport": transport,
        "bus": None,
        "serializer": serializer,
        "settings": settings,
    }
    with_states: Any = reaction(make_process(), **parts)
    without: Any = reaction(ProcessManager("other"), **parts)
    assert isinstance(with_states.__self__, ProcessRunner)
    assert isinstance(without.__self__, ProcessManagerRunner)
