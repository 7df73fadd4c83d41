"""
Which functions of Headrace a trace by `sys.setprofile` meets.

Used by `command_path` and `message_path`. Functions of the standard library and of other packages are none of
them, so the same code gives the same figures on every machine.
"""

from pathlib import Path
from types import CodeType
from typing import NamedTuple

import headrace
import headrace_mq

__all__ = ["Call", "call_of"]

# Parts of a function that some versions of Python run as functions of their own.
_PARTS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")

_ROOTS = {f"{Path(str(each.__file__)).parent}/": each.__name__ for each in (headrace, headrace_mq)}


class Call(NamedTuple):
    """A function that was called.

    Attributes:
        module: where it stands, such as "headrace.bus".
        function: its name there, such as "CommandBus.execute".
    """

    module: str
    function: str

    @property
    def package(self) -> str:
        """The room: "headrace.commands" for all modules in it, "headrace.bus" for that module."""
        return ".".join(self.module.split(".")[:2])


def call_of(code: CodeType) -> Call | None:
    """Returns the function of `headrace` or `headrace_mq` that has this code; None: it is none of theirs."""
    for root, name in _ROOTS.items():
        if code.co_filename.startswith(root) and not code.co_qualname.endswith(_PARTS):
            inner = Path(code.co_filename.removeprefix(root)).with_suffix("").parts
            parts = inner[:-1] if inner[-1] == "__init__" else inner
            return Call(".".join((name, *parts)), code.co_qualname)
    return None
