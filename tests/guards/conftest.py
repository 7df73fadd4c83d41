"""Counting what the interpreter executes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

# A fixed piece of ordinary Python: objects, attributes, dictionaries, a loop.
YARDSTICK_ITEMS = 100


class _Box:
    __slots__ = ("name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name


def _yardstick() -> None:
    seen: dict[str, _Box] = {}
    total = 0
    for number in range(YARDSTICK_ITEMS):
        box = _Box(number, str(number))
        seen[box.name] = box
        if box.number % 3:
            total += len(box.name)


def _instructions(work: Callable[[], Any]) -> int:
    """Counts the instructions that `work` executes in this thread, C functions not counted."""
    count = 0

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        return local

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.fixture(scope="session")
def cost() -> Callable[[Callable[[], Any]], float]:
    """What a piece of work costs, in instructions of the yardstick's round.

    The first call of the work only warms caches up.
    """
    rod = _instructions(_yardstick) / YARDSTICK_ITEMS

    def measure(work: Callable[[], Any]) -> float:
        work()
        return _instructions(work) / rod

    return measure
