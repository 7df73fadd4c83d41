"""The command `headrace`, and `python -m headrace`."""

import gc
from typing import NoReturn

__all__ = ["main"]

# A command loads up to a thousand modules, none of which is garbage. Python looks at them again and again by
# default (700, 10, 10), which was a seventh of the start.
_GC_THRESHOLDS = (50_000, 20, 50)


def main() -> NoReturn:
    """Runs the command line; what `headrace.cli.main` says of it holds."""
    gc.set_threshold(*_GC_THRESHOLDS)
    from headrace.cli import main as command_line  # it loads the modules

    command_line()


if __name__ == "__main__":
    main()
