"""
Runs a program on the quickest event loop that is installed.

Used by the broker and by the command line; uses uvloop if the extra `uvloop` is installed, else asyncio.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on a new event loop; returns its result, or raises its error."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
