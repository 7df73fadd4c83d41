"""
Options of `headrace broker` that say where old messages are archived.

Each one is a setting of the archive (`headrace_mq.settings.ArchiveSettings`); one that is not given
is left to the default there. Sits between: `broker` and the settings.
"""

from typing import Annotated

import typer

from headrace.cli.amounts import size_bytes

__all__ = ["ArchiveBacklog", "ArchiveUrl", "ArchiveWindow"]

ArchiveUrl = Annotated[
    str | None,
    typer.Option(
        "--archive", envvar="HEADRACE_ARCHIVE", metavar="URL",
        help="Archive messages in this database, postgresql://…, and read old ones from there.",
    ),
]  # fmt: skip
ArchiveWindow = Annotated[
    int | None,
    typer.Option(
        "--archive-window", parser=size_bytes, metavar="SIZE", show_default="4GiB",
        help="What each log keeps of what is archived.",
    ),
]  # fmt: skip
ArchiveBacklog = Annotated[
    int | None,
    typer.Option(
        "--archive-backlog", parser=size_bytes, metavar="SIZE", show_default="16GiB",
        help="New messages are refused while more than this waits for the archive.",
    ),
]  # fmt: skip
