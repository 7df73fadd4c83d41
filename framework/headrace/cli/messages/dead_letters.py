"""`headrace message dead|resend|purge`: lists, resends and deletes what a consumer group gave up."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, milliseconds, print_json
from headrace.cli.tables import print_table
from headrace.figures.records import content, described, word
from headrace.figures.words import when

__all__ = ["dead", "purge", "resend"]

Group = Annotated[str, typer.Argument(help="The consumer group's name.")]

# Between two lines about how far it got, in seconds; a resend that is over before says none.
_PROGRESS_S = 5


def dead(
    group: Group,
    *,
    unsent: Annotated[
        bool, typer.Option("--unsent/--all", help="Only those that were not sent again.")
    ] = False,
    start: Annotated[int, typer.Option("--from", metavar="ID", help="The first id shown.")] = 0,
    limit: Annotated[int, typer.Option(help="Show at most this many, up to 1,000.")] = 100,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """List the messages that a group gave up: its dead letters."""
    letters = ask(
        broker,
        lambda admin: admin.dead_letters(group, start=start, limit=limit, unsent=unsent),
    )
    if as_json:
        import msgspec

        print_json(
            [
                described(one.record)
                | {"id": one.id, "origin": msgspec.to_builtins(one.origin)}
                | {"resent_at_ms": one.resent_at_ms}
                for one in letters
            ]
        )
        return
    origins = [one.origin for one in letters]
    print_table(
        ("id", "from", "attempts", "reason", "resent at (UTC)", "body"),
        (
            (
                str(one.id),
                f"{origin.topic}:{origin.queue_id}:{origin.offset}" if origin else "",
                str(origin.attempt) if origin else "",
                word(origin.reason) if origin else "",
                "" if one.resent_at_ms is None else when(one.resent_at_ms) or "unknown",
                content(one.record),
            )
            for one, origin in zip(letters, origins, strict=True)
        ),
    )


def resend(
    group: Group,
    ids: Annotated[
        list[int] | None, typer.Argument(metavar="[ID]...", help="Dead letters, by id.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All that were not sent again before.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --all: letters per second. Default: 500."),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option("--body", metavar="TEXT", help="With one id: send this in place of its body."),
    ] = None,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Send dead letters of a group again. Exit status 1 if one could not be sent."""
    if bool(ids) == everything:
        raise typer.BadParameter("give ids, or --all", param_hint="ID")
    if rate is not None and not everything:
        raise typer.BadParameter("a rate goes with --all", param_hint="--rate")
    if body is not None and len(ids or ()) != 1:
        raise typer.BadParameter("a new body is for one letter: give one id", param_hint="--body")

    async def question(admin: Any) -> Any:
        from headrace_mq.admin.dead_letters import ResendSettings

        if not everything:
            edited = None if body is None else body.encode()
            return await admin.resend(group, ids or (), body=edited)
        settings = ResendSettings() if rate is None else ResendSettings(per_second=rate)
        return await admin.resend_all(group, settings=settings, progress=_progress())

    resent = ask(broker, question)
    rows = [
        (one.id, f"{one.sent.queue.topic}:{one.sent.queue.queue_id}:{one.sent.offset}", "")
        if one.sent is not None
        else (one.id, "", one.error)
        for one in resent
    ]
    if as_json:
        print_json([{"id": n, "sent_as": sent_as, "error": error} for n, sent_as, error in rows])
    else:
        print_table(
            ("id", "sent as", "error"), ((str(n), sent, word(error)) for n, sent, error in rows)
        )
    if any(error for *_, error in rows):
        raise typer.Exit(1)


def purge(
    group: Group,
    *,
    ids: Annotated[
        list[int] | None, typer.Option("--id", help="This letter; repeat it for more.")
    ] = None,
    resent: Annotated[bool, typer.Option("--resent", help="Those that were sent again.")] = False,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="TIME", help="Given up before; as --time takes."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Take dead letters off the list for good: those that meet every condition given."""
    if not (ids or resent or before):
        raise typer.BadParameter("say which letters: --id, --resent or --before", param_hint="--id")
    before_ms = None if before is None else milliseconds(before, "--before")
    purged = ask(
        broker,
        lambda admin: admin.purge(
            group, ids=ids or None, resent=resent, before_ms=before_ms, dry_run=dry_run
        ),
    )
    if as_json:
        print_json({"group": group, "letters": purged, "purged": not dry_run})
        return
    typer.echo(f"{purged:,} letters {'would be purged' if dry_run else 'purged'}")


def _progress() -> Callable[[int], None]:
    """Tells on standard error now and then how far it got."""
    told_s = time.monotonic()

    def tell(count: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _PROGRESS_S:
            told_s = time.monotonic()
            print(f"{count:,} letters sent again so far", file=sys.stderr, flush=True)

    return tell
