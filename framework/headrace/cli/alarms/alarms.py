"""`headrace alarms`: the rules about brokers and applications, and what says that one of them holds."""

import asyncio
import getpass
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.alarms.alarms_file import AlarmsFile, MaybeAlarmsFile, read_alarms_file
from headrace.cli.amounts import duration_ms
from headrace.cli.options import LogFormat, LogLevel
from headrace.cli.queue.administration import AsJson, print_json
from headrace.cli.tables import one_line, print_table
from headrace.figures.words import when

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the watcher
    from headrace.alarms.folder import AlarmFolder
    from headrace.alarms.settings import AlarmSettings

__all__ = ["commands"]

commands = typer.Typer(
    help="Alarms about brokers and applications, with and without Prometheus.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="An alarm, such as HeadraceBrokerDown.")]


@commands.command("list")
def list_alarms(*, alarms: MaybeAlarmsFile = None, as_json: AsJson = False) -> None:
    """List the rules: how bad each is, how long it must hold, and the page that says what to do.

    With --alarms it also lists which of them hold now. Ends with status 1 if one fires that is not silenced.
    """
    from headrace.alarms.overview import overview
    from headrace.alarms.rules.table import RULES

    if alarms is None:
        rules = [rule._asdict() | {"runbook": rule.runbook} for rule in RULES.values()]
        if as_json:
            print_json({"rules": rules})
            return
        print_table(
            ("alarm", "severity", "after", "what to do"),
            ((one.name, one.severity, one.lasting, one.runbook) for one in RULES.values()),
        )
        return
    found = overview(_folder(read_alarms_file(alarms)), time.time())
    if as_json:
        print_json(found)
    else:
        _show(found)
    if any(not one["silence"] for one in found["firing"]):
        raise typer.Exit(1)


@commands.command()
def watch(
    *, alarms: AlarmsFile, log_format: LogFormat = "console", log_level: LogLevel = "info"
) -> None:
    """Watch brokers, name servers and applications, and tell by webhook and mail of each alarm. Stop it with SIGTERM."""
    from headrace.cli.logs import configure_logs

    configure_logs(log_format, log_level)
    asyncio.run(_watch(read_alarms_file(alarms)))


@commands.command()
def test(name: Name, *, alarms: AlarmsFile) -> None:
    """Send a test of an alarm to all receivers. Ends with status 1 if one does not take it."""
    from headrace.alarms.receivers import receivers_of
    from headrace.alarms.rules.table import rule_of
    from headrace.alarms.watcher import send_test

    receivers = receivers_of(read_alarms_file(alarms))
    if not receivers:
        raise typer.BadParameter(f"{alarms} names no webhook and no mail", param_hint="--alarms")
    answers = asyncio.run(send_test(rule_of(name), receivers, time.time()))
    for receiver, sentence in answers.items():
        typer.echo(f"{receiver}: {sentence or 'has taken it'}")
    if any(answers.values()):
        raise typer.Exit(1)


@commands.command()
def silence(
    name: Name,
    *,
    lasting: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long, such as 30m, 2h or 3d.")
    ],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason.")],
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME=VALUE",
            help="Only alarms with this label, such as group=kitchen; repeatable.",
        ),
    ] = None,
    alarms: AlarmsFile,
) -> None:
    """Send no messages about an alarm for some time. It still stands in lists."""
    labels = dict(each.partition("=")[::2] for each in label or ())
    if not all(map(all, labels.items())):
        raise typer.BadParameter("write NAME=VALUE", param_hint="--label")
    made = _folder(read_alarms_file(alarms)).silence(
        name,
        for_s=duration_ms(lasting) / 1_000,
        why=why,
        by=getpass.getuser(),
        now_s=time.time(),
        labels=labels,
    )
    typer.echo(f"{made.id}: {name} is silent until {when(round(made.until_s * 1_000))} UTC")


@commands.command()
def silences(*, alarms: AlarmsFile, as_json: AsJson = False) -> None:
    """List the silences that hold."""
    from headrace.alarms.overview import silence_rows

    found = silence_rows(_folder(read_alarms_file(alarms)).silences(time.time()))
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "alarm", "only", "until (UTC)", "by", "why"),
        (
            (one["id"], one["alarm"], _labels(one), when(one["until_ms"]), one["by"], one_line(one["why"]))
            for one in found
        ),
    )  # fmt: skip


@commands.command()
def unsilence(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Of the silence.")],
    *,
    alarms: AlarmsFile,
) -> None:
    """End a silence: what still fires is sent at once."""
    ended = _folder(read_alarms_file(alarms)).unsilence(id_, now_s=time.time())
    typer.echo(f"{ended.id}: {ended.rule} is silent no more")


@commands.command()
def prometheus() -> None:
    """Print the rules as a file for Prometheus."""
    from headrace.alarms.rules.table import for_prometheus

    typer.echo(for_prometheus(), nl=False)


def _folder(settings: "AlarmSettings") -> "AlarmFolder":
    from headrace.alarms.folder import AlarmFolder

    return AlarmFolder(settings.folder)


def _show(found: dict[str, Any]) -> None:
    if found["trouble"]:
        typer.echo(f"{found['trouble']}\n")
    if found["firing"]:
        print_table(
            ("firing", "severity", "since (UTC)", "silence", "what happened"),
            (
                (one["alarm"], one["severity"], when(one["since_ms"]), one["silence"], one_line(one["summary"]))
                for one in found["firing"]
            ),
        )  # fmt: skip
        typer.echo("")
    print_table(
        ("alarm", "severity", "after", "firing", "what to do"),
        (
            (one["alarm"], one["severity"], one["after"], one["firing"] or None, one["runbook"])
            for one in found["rules"]
        ),
    )


def _labels(silence: dict[str, Any]) -> str:
    return " ".join(f"{name}={one_line(value)}" for name, value in silence["labels"].items())


async def _watch(settings: "AlarmSettings") -> None:
    from headrace.alarms.watcher import AlarmWatcher

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows: Ctrl-C ends it
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(AlarmWatcher(settings).run(), name="alarms")
    print(f"headrace alarms watch: {len(settings.target)} processes", flush=True)
    asked = asyncio.create_task(stop.wait(), name="signal")
    done, pending = await asyncio.wait({asked, watching}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if watching in done:
        watching.result()
