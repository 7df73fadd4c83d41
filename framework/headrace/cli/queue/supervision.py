"""
`headrace broker --supervise`: runs the same command line again in a child process and watches it.

Used by `headrace broker`; starts the supervisor.
"""

import asyncio
import ctypes
import os
import platform
import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "CrashReports",
    "Supervise",
    "SupervisedBy",
    "child_command",
    "divide_work",
    "end_with_parent",
]

_READY = "headrace broker ready on "
# From Linux's prctl.h: the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1

Supervise = Annotated[
    bool,
    typer.Option(
        "--supervise",
        help="Run it in a process of its own and start that again when it dies or is stuck.",
    ),
]
CrashReports = Annotated[
    Path | None,
    typer.Option(
        "--crash-reports", metavar="FOLDER", show_default="DATA.crashes, next to the data",
        help="With --supervise: where reports of unwanted ends are kept.",
    ),
]  # fmt: skip
SupervisedBy = Annotated[int | None, typer.Option("--supervised-by", hidden=True)]


def divide_work(
    data: Path,
    supervise: bool,
    stuck_after_ms: int | None,
    reports: Path | None,
    supervised_by: int | None,
) -> None:
    """Returns in the process that is to be the broker; a supervisor does its work in here.

    Args:
        data: the broker's folder. Reports are kept next to it, because it holds the broker's files
            alone: what else is in there would be taken for what is left of a damaged one.
        supervise: whether a supervisor is wanted.
        stuck_after_ms: None leaves it to the settings.
        reports: their folder, None for the one next to the data.
        supervised_by: the supervisor's process, in the process that it started.

    Raises:
        typer.Exit: the supervisor is done.
        typer.BadParameter: what a supervisor is to do is said, and none is wanted.
    """
    if supervised_by is not None:
        end_with_parent(supervised_by)
    elif supervise:
        raise typer.Exit(_supervise(data, stuck_after_ms, reports))
    elif stuck_after_ms is not None:
        raise typer.BadParameter("only --supervise asks; add it", param_hint="--stuck-after")
    elif reports is not None:
        raise typer.BadParameter(
            "only --supervise writes any; add it", param_hint="--crash-reports"
        )


def _supervise(data: Path, stuck_after_ms: int | None, reports: Path | None) -> int:
    from headrace_mq.settings import SuperviseSettings
    from headrace_mq.supervisor.supervisor import Supervised, supervise

    try:
        settings = SuperviseSettings()
        if stuck_after_ms is not None:
            settings = SuperviseSettings(
                stuck_after_ms=stuck_after_ms,
                ask_every_ms=min(settings.ask_every_ms, stuck_after_ms),
            )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--stuck-after") from error
    folder = data.resolve()
    supervised = Supervised(
        command=child_command,
        ready=_READY,
        reports=reports or folder.with_name(f"{folder.name}.crashes"),
        versions=_versions(),
    )
    return asyncio.run(supervise(supervised, settings, said=lambda line: print(line, flush=True)))


def child_command(port: int | None) -> tuple[str, ...]:
    """The command line of the broker's own process: this one's, with the last word on its port."""
    fixed = () if port is None else ("--port", str(port))
    # The interpreter writes every thread's stack when a signal ends it, also in the midst of C.
    interpreter = (sys.executable, "-X", "faulthandler", "-m", "headrace")
    return (*interpreter, *sys.argv[1:], "--supervised-by", str(os.getpid()), *fixed)


def end_with_parent(parent: int) -> None:
    """Has this process stop in order when its supervisor is gone, where the system can.

    Without it, the next supervisor would find the directory in use by a broker without a supervisor.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the system was told
            raise typer.Exit(1)


def _versions() -> dict[str, str]:
    try:
        own = version("headrace")
    except PackageNotFoundError:  # run from its sources
        own = "unknown"
    return {"headrace": own, "python": sys.version.split()[0], "system": platform.platform()}
