"""`headrace audit`: who did what at a broker, who got in, and who was refused."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, milliseconds, print_json
from headrace.cli.tables import one_line, print_table
from headrace.figures.words import when

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.access.audit import AuditEntry

__all__ = ["commands"]

commands = typer.Typer(
    help="Who did what at a broker, who got in, and who was refused.", no_args_is_help=True
)

_COLUMNS = ("time (UTC)", "user", "action", "resource", "address", "outcome", "detail")


@commands.command("list")
def list_entries(
    *,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="None older: 2026-01-31T14:00Z, or ms since 1970.")
    ] = "",
    by: Annotated[
        str, typer.Option(metavar="USER", help="What this user did, and what was done to it.")
    ] = "",
    action: Annotated[str, typer.Option(help="Such as login, create_topic, set_rule.")] = "",
    outcome: Annotated[str, typer.Option(help="done, failed, refused or 'left out'.")] = "",
    limit: Annotated[int, typer.Option(help="How many at most, the newest.")] = 1_000,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """List entries of the audit, the oldest first. It needs the permission to read the cluster."""
    since_ms = milliseconds(since, "--since") if since else 0
    is_any = not (by or action or outcome)

    def chosen(entry: "AuditEntry") -> bool:
        return (
            (not by or entry.is_about(by))
            and action in {"", entry.action}
            and outcome in {"", entry.outcome}
        )

    try:
        entries = ask(
            broker,
            lambda admin: admin.audit(limit, since_ms=since_ms, chosen=None if is_any else chosen),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from error
    if as_json:
        print_json(entries)
    else:
        print_table(_COLUMNS, map(_row, entries))


@commands.command()
def tail(
    *,
    last: Annotated[int, typer.Option("--last", "-n", help="How many entries.")] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep showing new entries until interrupted.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, for programs.")
    ] = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Show the last entries of the audit. It needs the permission to read the cluster."""

    async def question(admin: Any) -> None:
        if not follow:
            _print(await admin.audit(last), as_json=as_json)
            return
        async for entry in admin.follow_audit(last):
            _print([entry], as_json=as_json)

    try:
        ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--last") from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print(entries: list["AuditEntry"], *, as_json: bool) -> None:
    for entry in entries:
        if as_json:
            fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
            print(json.dumps(fields, ensure_ascii=True), flush=True)
        else:
            print(one_line("  ".join(filter(None, _row(entry)))), flush=True)


def _row(entry: "AuditEntry") -> tuple[str, ...]:
    more = f"and {entry.more:,} more" if entry.more else ""
    return (
        when(entry.at_ms), entry.user, entry.action, entry.resource, entry.address, entry.outcome,
        "; ".join(filter(None, (entry.detail, more))),
    )  # fmt: skip
