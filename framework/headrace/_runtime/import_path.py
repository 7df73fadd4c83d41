"""
What a path such as `shop.main:app` names, imported; each thing that can go wrong becomes one sentence.

Used by `app`, for the command line and Spark's executors; imports the user's modules. It never knows what
an application is.
"""

import importlib
import sysconfig
import traceback
from typing import Any

from headrace.errors import DefinitionError, HeadraceError

__all__ = ["import_named"]


def import_named(path: str) -> Any:
    """Imports `module:attribute` and returns the attribute, or None where the module has none.

    Raises:
        DefinitionError: the path is no such thing, or the module cannot be imported; the sentence
            tells the file and the line.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise DefinitionError(
            f"{path!r}: name an application as MODULE:ATTRIBUTE, say shop.main:app"
        )
    try:
        module = importlib.import_module(module_name)
    except HeadraceError:
        raise  # a definition that is wrong, with a sentence of its own
    except (Exception, SystemExit) as error:
        raise DefinitionError(f"{path!r}: {_why(module_name, error)}") from error
    return getattr(module, attribute, None)


def _why(module_name: str, error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{module_name}.".startswith(f"{missing}."):
        return f"there is no module {missing!r}; run the command from the folder that holds it"
    if missing is not None:
        return f"there is no module {missing!r}, which {_place(error)} imports; install it"
    if isinstance(error, SystemExit):
        return (
            f"{_place(error)} ends the program while it is imported;"
            " put that behind `if __name__ == '__main__':`"
        )
    what = error.msg if isinstance(error, SyntaxError) else error
    return (
        f"{module_name} cannot be imported: {type(error).__name__} at {_place(error)}: {what};"
        f" `python -c 'import {module_name}'` shows all of it"
    )


def _place(error: BaseException) -> str:
    """Where to look: the innermost line that is neither Python's nor an installed package's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    paths = sysconfig.get_paths()
    others = ("<frozen ", *(paths[name] for name in ("stdlib", "purelib", "platlib")))
    frames = traceback.extract_tb(error.__traceback__)
    # The first one is this module's, and the last one is the user's in any case.
    own = [frame for frame in frames[1:] if not frame.filename.startswith(others)]
    last = own[-1] if own else frames[-1]
    return f"{last.filename}:{last.lineno}"
