"""Which event loop a program gets, with uvloop and without it."""

import asyncio
import sys

import pytest

from headrace_mq._runtime import event_loop


async def loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_a_program_runs_on_uvloop_if_it_is_installed() -> None:
    assert event_loop.run(loop_module()).startswith("uvloop")


def test_a_program_runs_on_asyncio_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(loop_module()).startswith("asyncio")


@pytest.mark.parametrize("installed", [True, False])
def test_an_error_reaches_the_caller(monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        event_loop.run(fail())
