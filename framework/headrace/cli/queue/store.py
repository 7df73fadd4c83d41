"""`headrace store`: checks and repairs the data of a broker that does not run, and tests its disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace._runtime.private_files import open_new
from headrace.cli.queue.administration import print_json
from headrace.cli.tables import print_table
from headrace.figures.records import described

if TYPE_CHECKING:
    # For annotations alone: the commands load the queue when they are called.
    from headrace_mq.store.check.inspection import Report
    from headrace_mq.store.check.repair import Repair
    from headrace_mq.store.check.selftest import SelfTest

__all__ = ["commands"]

commands = typer.Typer(help="The files of a broker that does not run.", no_args_is_help=True)

Directory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The broker's directory, as in `headrace broker --data`."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]

_EXIT_DAMAGE, _EXIT_CANNOT = 1, 2


@commands.command()
def check(directory: Directory, *, as_json: AsJson = False) -> None:
    """Verify every checksum; changes nothing. Exit status 0: clean, 1: damage, 2: cannot tell."""
    from headrace_mq.broker.metadata import METADATA
    from headrace_mq.store.check.inspection import check as check_store

    _quiet()
    report = check_store(directory, metadata=METADATA)
    if as_json:
        _print_json(report.status, report)
    else:
        _show_report(report)
    raise typer.Exit({"clean": 0, "damaged": _EXIT_DAMAGE, "newer": _EXIT_CANNOT}[report.status])


@commands.command()
def repair(
    directory: Directory,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes; without this they are only reported.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Copy the sound batches of damaged segments to a new file first.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report how to make a damaged store usable again, and do it with --apply; deletes nothing.

    Exit status 0: nothing is left to do, 1: something is, 2: cannot tell.
    """
    from headrace_mq.broker.metadata import METADATA
    from headrace_mq.store.check.repair import export as export_batches
    from headrace_mq.store.check.repair import repair as repair_store

    _quiet()
    exported = None
    if export is not None:
        # Mode x: never overwrites a file.
        with open_new(export, "xb") as target:
            exported = export_batches(directory, target)
    done = repair_store(directory, metadata=METADATA, apply=apply)
    if as_json:
        _print_json("repaired" if apply else "planned", done, exported=exported)
    else:
        if exported is not None:
            typer.echo(
                f"{exported.records} records in {exported.batches} batches of"
                f" {len(exported.segments)} damaged segments copied to {export}"
            )
        _show_repair(done)
    raise typer.Exit(_EXIT_DAMAGE if done.steps and not apply else 0)


@commands.command()
def selftest(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to test.")],
    *,
    mib: Annotated[int, typer.Option(help="How much to write in large blocks.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Test whether the disk of a directory keeps what it has synced; leaves nothing behind.

    Exit status 0: passed, perhaps with warnings, 1: bytes were lost, 2: cannot tell.
    """
    from headrace_mq.store.check.selftest import selftest as test_disk

    _quiet()
    try:
        report = test_disk(directory, size_mib=mib)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--mib") from error
    if as_json:
        _print_json(report.status, report)
    else:
        _show_selftest(report)
    raise typer.Exit(_EXIT_DAMAGE if report.status == "failed" else 0)


@commands.command()
def lost(
    directory: Directory,
    *,
    messages: Annotated[
        bool, typer.Option("--messages", help="Print each message as JSON, one in a line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the messages that a broker of a group cut because another one led without them; it may run. Exit status 1: there are some."""
    from headrace_mq._runtime.files import SystemFiles
    from headrace_mq.errors import DataCorrupt
    from headrace_mq.store.replication.lost_messages import LOST_FOLDER, lost_files, lost_queues

    _quiet()
    if not directory.is_dir():
        raise typer.BadParameter("there is no such folder", param_hint="DIR")
    found = lost_files(SystemFiles(), directory)
    try:
        if messages:
            _print_lost(directory, [one.name for one in found])
        elif as_json:
            print_json(
                [
                    {
                        **one._asdict(),
                        "queues": [
                            {**each._asdict(), "queue": each.queue._asdict()}
                            for each in lost_queues(directory, one.name)
                        ],
                    }
                    for one in found
                ]
            )
        elif found:
            print_table(
                ("file", "topic", "queue", "messages", "first offset", "last offset"),
                (
                    (one.name, *each.queue, each.messages, each.first, each.last)
                    for one in found
                    for each in lost_queues(directory, one.name)
                ),
            )
            typer.echo(
                f"send again what you need of them, then move the files out of {directory / LOST_FOLDER}; that ends the alarm"
            )
        else:
            typer.echo("no message was cut that may have been acknowledged")
    except DataCorrupt as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_EXIT_CANNOT) from error
    raise typer.Exit(_EXIT_DAMAGE if found else 0)


def _print_lost(directory: Path, names: list[str]) -> None:
    import msgspec

    from headrace_mq.protocol.batch import decode_records
    from headrace_mq.store.replication.lost_messages import lost_batches

    for name in names:
        for _, batch in lost_batches(directory, name):
            for record in decode_records(batch):
                print(msgspec.json.encode(described(record)).decode())


def _quiet() -> None:
    # The report says it all; the parts' own log lines would stand between its lines.
    from headrace.cli.logs import configure_logs

    configure_logs("console", level="critical")


def _print_json(status: str, report: Any, **more: object) -> None:
    import msgspec

    told = {name: value for name, value in more.items() if value is not None}
    content = {"status": status, **msgspec.structs.asdict(report), **told}
    print(msgspec.json.format(msgspec.json.encode(content), indent=2).decode())


def _show_report(report: "Report") -> None:
    print_table(
        ("file", "kind", "bytes", "batches", "records"),
        (
            (
                one.file, one.kind, one.bytes,
                *((one.batches, one.records) if one.kind == "segment" else (None, None)),
            )
            for one in report.files
        ),
    )  # fmt: skip
    if report.findings:
        print_table(
            ("found in", "what", "where", "which messages", "why"),
            (
                (
                    one.file, one.kind,
                    f"{one.position:,} +{one.length:,}" if one.position >= 0 else None,
                    f"{one.queue} from {one.base_offset:,}: {one.records:,}" if one.queue else None,
                    one.reason,
                )
                for one in report.findings
            ),
        )  # fmt: skip
    typer.echo(f"{report.directory} is {_sentence(report)}")


def _sentence(report: "Report") -> str:
    if report.status == "clean":
        left_out = sum(one.kind == "undecodable" for one in report.findings)
        return (
            f"clean, but for {left_out} batches that no reader can decode" if left_out else "clean"
        )
    if report.status == "newer":
        return "partly of a newer version: check it with the version that wrote it"
    if (Path(report.directory) / "metadata" / "group.json").exists():
        return (
            "damaged; this broker belongs to a group: start it in its group, and it gets damaged messages from another"
            " broker. Where it does not start, empty its folder and start it, and it copies everything"
        )
    repair_it = f"`headrace store repair {report.directory}`"
    return f"damaged; {repair_it} says what can be done, restore a backup where messages matter"


def _show_repair(done: "Repair") -> None:
    for step in done.steps:
        if step.becomes:
            typer.echo(f"{step.file} -> {step.becomes}: {step.reason}")
        else:
            typer.echo(f"{step.file} written: {step.reason}")
    left = sum(one.is_damage and not one.remedy for one in done.report.findings)
    if left:
        typer.echo(f"{left} damaged places in segments stay: a broker leaves them out by itself")
    if not done.steps:
        typer.echo("nothing needs repair")
    elif not done.applied:
        typer.echo("nothing was changed; the same command with --apply does it")


def _show_selftest(report: "SelfTest") -> None:
    for measure in report.measures:
        typer.echo(f"{'ok    ' if measure.passed else 'FAILED'} {measure.name}: {measure.sentence}")
        if measure.warning:
            typer.echo(f"       WARNING: {measure.warning}")
    typer.echo(f"the disk of {report.directory}: {report.status}")
