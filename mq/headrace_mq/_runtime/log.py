"""
Log lines where the program wants them: through structlog if it configured that, else through `logging`.

A library that prints decides for its user. Without a word of configuration a warning goes to standard
error, as `logging` does it, less than that nowhere, and never anything to standard output. Errors come
with their traceback, without the values of local variables: those may hold what no log should.

Used by every module that logs; uses the two libraries.
"""

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog

__all__ = ["get_logger"]


def _line(_logger: object, _level: str, said: MutableMapping[str, Any]) -> str:
    event, traceback = said.pop("event"), said.pop("exception", "")
    words = [str(event), *(f"{name}={value!r}" for name, value in said.items())]
    return " ".join(words) + (f"\n{traceback}" if traceback else "")


_PLAIN = (
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.processors.format_exc_info,
    _line,
)


class _Logger:
    """A logger that looks at each line whether structlog has been configured by then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = structlog.wrap_logger(
            logging.getLogger(name), processors=_PLAIN, wrapper_class=structlog.stdlib.BoundLogger
        )

    def __getattr__(self, level: str) -> Any:
        chosen = structlog.get_logger(self._name) if structlog.is_configured() else self._plain
        return getattr(chosen, level)


def get_logger(name: str) -> Any:
    """Returns the logger of a module, with structlog's methods: `warning("it happened", what=1)`."""
    return _Logger(name)
