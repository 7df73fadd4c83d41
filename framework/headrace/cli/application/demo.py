"""
`headrace demo`: the bank sample end to end, as `make demo` runs it in a checkout.

Used by you, to see everything work together before you write a line. The sample and its data come with the package.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace._runtime.shipped import shipped_folder

__all__ = ["demo"]


def demo(
    transactions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own transactions instead of those that are there."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where broker and databases keep their files; default: ./var/demo/bank.",
        ),
    ] = None,
    *,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="On a Kafka broker, which it fetches and starts.")
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="On a broker with TLS, a login and least permissions.")
    ] = False,
    replicas: Annotated[
        bool,
        typer.Option("--replicas", help="On a group of three brokers, and the leader is killed."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what earlier demos stored in that folder.")
    ] = False,
    console: Annotated[
        bool,
        typer.Option(
            "--console",
            help="Go on with a web console and more commands until Ctrl-C, in a folder of its own that begins empty.",
        ),
    ] = False,
) -> None:
    """Run a bank: a broker and a service in processes, a crash, read models, a Spark rebuild.

    Exit status 0: all that was compared is the same. 3: the same, but Spark could not run.
    """
    queues = {"kafka": kafka, "secured": secure, "replicated": replicas}
    chosen = [name for name, wanted in queues.items() if wanted]
    if len(chosen) > 1:
        raise typer.BadParameter("use one of --kafka, --secure and --replicas")
    if console and chosen:
        raise typer.BadParameter(
            "--console is of the demo on one broker: leave out the other option"
        )
    root = shipped_folder("_shipped", "", mark="samples/bank/__init__.py")
    options = {"--transactions": transactions, "--data": data}
    given = [part for name, path in options.items() if path for part in (name, os.fspath(path))]
    sys.argv = [
        "headrace demo",
        *given,
        *(["--fresh"] if fresh else []),
        *(["--broker", *chosen] if chosen else []),
        *(["--console"] if console else []),
    ]
    # First of all: a folder `samples` where the command is called is another one.
    sys.path.insert(0, str(root))
    runpy.run_module("samples.bank.demo", run_name="__main__", alter_sys=False)
