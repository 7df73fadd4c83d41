"""`headrace group`: shows consumer groups of a broker, and moves their offsets."""

import shlex
from typing import Annotated, Any, cast

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, milliseconds, print_json
from headrace.cli.tables import print_table
from headrace.figures.words import age, per_second, when

__all__ = ["DryRun", "commands", "show_moves"]

commands = typer.Typer(help="Consumer groups and their offsets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The group's name.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Repeat it for more. Default: all with offsets of the group."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would move; change nothing.")]


@commands.command("list")
def list_groups(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List every group with its members, its lag, and how fast it reads.

    Groups that keep their own offsets, as projections do, show no lag.
    """
    groups = ask(broker, lambda admin: admin.groups())
    if as_json:
        print_json(groups)
        return
    print_table(
        ("group", "members", "queues", "lag", "messages/s", "bytes/s", "retries", "state"),
        (
            (
                one.group, one.members, one.queues, one.lag if one.commits else "",
                *per_second(one.fetched), _retries(one), "" if one.consume else "paused by an operator",
            )
            for one in groups
        ),
    )  # fmt: skip


@commands.command()
def show(name: Name, *, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Show a group's members, which of them has which queue, and how far behind the group is in it."""

    async def question(admin: Any) -> tuple[Any, Any]:
        group = await admin.group(name)
        return group, await admin.lag(name, group.topics)

    group, lag = ask(broker, question)
    if as_json:
        print_json({"group": group, "now_ms": lag.now_ms, "queues": lag.queues})
        return
    if group.members:
        print_table(
            ("member", "address", "software", "connected (UTC)", "held up", "queues", "topics"),
            (
                (
                    m.member, m.address or _away(m), m.software, when(m.since_ms), f"{m.throttled_ms:,} ms",
                    sum(one.member == m.member for one in lag.queues), " ".join(m.topics),
                )
                for m in group.members
            ),
        )  # fmt: skip
    print_table(
        (
            "topic", "queue", "member", "since (UTC)", "end", "offset", "lag", "oldest waits for",
            "messages/s",
        ),
        (
            (
                one.topic, one.queue_id, one.member or "none",
                when(lag.now_ms - one.held_ms if one.member else 0), one.end,
                _place(one.committed), one.lag, age(lag.now_ms, one.oldest_stored_at_ms),
                per_second(one.fetched)[0],
            )
            for one in lag.queues
        ),
    )  # fmt: skip
    behind = sum(one.lag for one in lag.queues)
    if all(one.committed < 0 for one in lag.queues):
        told = (
            "no offsets here: it has yet to begin, or keeps them itself; `headrace projection status`"
            " tells how far projections are"
        )
    else:
        told = f"{behind:,} messages behind"
    typer.echo(f"group {name}: {len(group.members)} members, {told}")
    for rules in group.rules:
        _show_rules(rules)


@commands.command("set")
def set_group(
    name: Name,
    *,
    consume: Annotated[
        str | None,
        typer.Option(
            metavar="on|off",
            help="'off' gives the group no messages: its members stay and wait. 'on' lets it go on.",
        ),
    ] = None,
    retries: Annotated[
        str | None,
        typer.Option(
            metavar="N|default",
            help="How often retrying members try a failed message again; 'default': as each was set up.",
        ),
    ] = None,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Pause a group or let it go on, or set its retries; holds within a second, and across restarts."""
    if consume is None and retries is None:
        raise typer.BadParameter("say --consume, or --retries", param_hint="--consume")
    if consume not in {None, "on", "off"}:
        raise typer.BadParameter("use 'on' or 'off'", param_hint="--consume")
    if not (retries is None or retries == "default" or retries.isdecimal()):
        raise typer.BadParameter("use 0 or more, or 'default'", param_hint="--retries")
    answer = ask(
        broker,
        lambda admin: admin.set_group(
            name,
            consume=None if consume is None else consume == "on",
            retries=None if retries is None else -1 if retries == "default" else int(retries),
        ),
    )
    if as_json:
        print_json(answer)
        return
    if answer.consume:
        typer.echo(f"group {name}: it gets messages")
    _show_rules(answer)
    if answer.retries < 0:
        typer.echo(
            f"group {name}: its retrying members try a failed message as often as each was set up"
        )


@commands.command()
def reset(
    name: Name,
    *,
    topic: Topics = None,
    queue: Annotated[
        list[int] | None,
        typer.Option("--queue", help="A queue's number; repeat it for more. Default: all."),
    ] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="To the oldest message.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="Behind the newest message.")] = False,
    offset: Annotated[int | None, typer.Option(help="To this offset.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To what was stored then or later: 2026-01-31T14:00:00.250Z (no zone: UTC), or"
            " milliseconds since 1970.",
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option(help="By so many messages: --shift=-100 goes back.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Move a group's offsets; its consumers must be stopped. Exactly one target is given."""
    targets: list[tuple[Any, int]] = []
    targets += [("earliest", 0)] if earliest else []
    targets += [("latest", 0)] if latest else []
    targets += [("offset", offset)] if offset is not None else []
    targets += [("time", milliseconds(time, "--time"))] if time is not None else []
    targets += [("shift", shift)] if shift is not None else []
    if len(targets) != 1:
        raise typer.BadParameter(
            "give exactly one of --earliest, --latest, --offset, --time, --shift"
        )
    to, value = targets[0]
    answer = ask(
        broker,
        lambda admin: admin.reset_offsets(
            name, to, value, topics=topic or (), queues=queue or (), dry_run=dry_run
        ),
    )
    show_moves(f"group {name}", answer, as_json=as_json)


@commands.command()
def undo(
    name: Name,
    *,
    reset_at_ms: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="MS",
            help="Take back this move alone, as --dry-run --json tells it; 0: the last one.",
        ),
    ] = 0,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Put a group back to where it stood before its last reset; its consumers must be stopped."""
    answer = ask(
        broker, lambda admin: admin.undo_reset(name, reset_at_ms=reset_at_ms, dry_run=dry_run)
    )
    show_moves(f"group {name}", answer, as_json=as_json)
    if not as_json:
        typer.echo(f"it was moved at {when(answer.reset_at_ms)} UTC by {answer.reset_by}")
    if answer.hindered:
        typer.echo(f"this cannot be done: {answer.hindered}", err=True)
        raise typer.Exit(1)


@commands.command()
def clone(
    name: Annotated[str, typer.Argument(metavar="SOURCE", help="The group to copy from.")],
    target: Annotated[str, typer.Argument(help="The group that gets the offsets.")],
    *,
    topic: Topics = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Copy a group's offsets to another group; the target's consumers must be stopped."""
    answer = ask(
        broker,
        lambda admin: admin.clone_offsets(name, target, topics=topic or (), dry_run=dry_run),
    )
    show_moves(f"group {target}", answer, as_json=as_json)


@commands.command()
def limit(
    name: Name,
    *,
    messages: Annotated[
        int | None, typer.Option(min=1, help="How many messages it may be behind, over all queues.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="'block' lets producers wait, 'reject' refuses their messages, 'drop_oldest' lets"
            " the group SKIP messages for good."
        ),
    ] = "block",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the limit.")] = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Limit how far behind a group may be; holds at once, and across restarts."""
    if remove == (messages is not None):
        raise typer.BadParameter("say --messages, or --remove", param_hint="--messages")
    if messages is None:
        ask(broker, lambda admin: admin.unlimit_backlog(name))
        typer.echo(f"group {name}: no limit")
        return
    ask(broker, lambda admin: admin.limit_backlog(name, messages, cast("Any", policy)))
    typer.echo(f"group {name}: {messages:,} messages, then {policy}")


@commands.command()
def limits(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List the groups that have a limit, and how near to it they are."""
    found = ask(broker, lambda admin: admin.backlogs())
    if as_json:
        print_json(found)
        return
    print_table(
        ("group", "limit", "policy", "behind", "skipped", "alarm"),
        (
            (
                one.group, one.messages_max, one.policy, one.messages, one.dropped,
                "yes" if one.alarm else "",
            )
            for one in found
        ),
    )  # fmt: skip


@commands.command()
def delete(
    name: Name,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Delete a group's offsets; its consumers must be stopped."""
    answer = ask(broker, lambda admin: admin.delete_group(name, dry_run=dry_run))
    show_moves(f"group {name}", answer, as_json=as_json)


def show_moves(what: str, answer: Any, *, as_json: bool) -> None:
    """Prints where a group was moved, or would be."""
    if as_json:
        print_json(answer)
        return
    print_table(
        ("topic", "queue", "from", "to", "delivered again", "skipped"),
        (
            (m.topic, m.queue_id, _place(m.before), _place(m.after), m.redelivered, m.skipped)
            for m in answer.moves
        ),
    )
    again = sum(move.redelivered for move in answer.moves)
    skipped = sum(move.skipped for move in answer.moves)
    counts = f"{again:,} messages delivered again, {skipped:,} skipped"
    if answer.moved:
        typer.echo(f"{what} moved: {counts}")
    else:
        typer.echo(f"{what} was not moved; without --dry-run: {counts}")


def _show_rules(rules: Any) -> None:
    """Prints the rules that an operator has set for a group, if there are any."""
    if not rules.consume:
        typer.echo(
            f"group {rules.group}: PAUSED by an operator since {when(rules.paused_at_ms)} UTC; it gets no"
            f" messages until `headrace group set {shlex.quote(rules.group)} --consume on`"
        )
    if rules.retries >= 0:
        typer.echo(
            f"group {rules.group}: its retrying members try a failed message {rules.retries:,} times again"
        )


def _retries(one: Any) -> str:
    return f"{one.retries:,}" if one.retries >= 0 else ""


def _away(member: Any) -> str:
    return f"away, its place is kept for {-(-member.away_ms // 1_000)} s"


def _place(offset: int) -> int | str:
    return "none" if offset < 0 else offset
