"""`headrace topic`: creates, shows, changes and deletes topics of a broker and their queues."""

import asyncio
from typing import Annotated, Any

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json, quiet
from headrace.cli.tables import print_table
from headrace.figures.topics import frozen_queues, frozen_sides, topic_rows
from headrace.figures.words import per_second, when

__all__ = ["commands"]

commands = typer.Typer(help="Topics and their queues.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The topic's name.")]
Queues = Annotated[
    list[int] | None, typer.Option("--queue", help="A queue's number; repeat it. Default: all.")
]
Writing = Annotated[bool, typer.Option("--writing", help="No new messages.")]
Reading = Annotated[bool, typer.Option("--reading", help="No messages to consumers.")]


@commands.command("list")
def list_topics(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List every topic with its queues, the messages they hold, and how fast they come and go."""

    async def question(admin: Any) -> list[dict[str, Any]]:
        return await topic_rows(admin, await admin.topics())

    topics = ask(broker, question)
    if as_json:
        print_json(topics)
        return
    print_table(
        ("topic", "queues", "kept", "messages", "in/s", "out/s", "frozen"),
        (
            (
                one["topic"], one["queues"], one["retention"], one["messages"],
                per_second(one["produced"])[0], per_second(one["fetched"])[0], frozen_queues(one["unwritable"], one["unreadable"]),
            )
            for one in topics
        ),
    )  # fmt: skip


@commands.command()
def show(name: Name, *, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Show a topic's queues: what they hold, since when, and whether they are frozen."""

    async def question(admin: Any) -> tuple[Any, list[Any]]:
        topic = await admin.topic(name)
        return topic, await admin.queues([topic])

    topic, queues = ask(broker, question)
    if as_json:
        print_json({"topic": name, "retention": topic.retention, "queues": queues})
        return
    print_table(
        (
            "queue", "first", "end", "messages", "oldest (UTC)", "newest (UTC)", "in/s", "out/s",
            "frozen for",
        ),
        (
            (
                one.queue_id, one.first, one.end, one.end - one.first,
                when(one.first_stored_at_ms), when(one.last_stored_at_ms),
                per_second(one.produced)[0], per_second(one.fetched)[0],
                frozen_sides(writing=not one.writable, reading=not one.readable),
            )
            for one in queues
        ),
    )  # fmt: skip
    typer.echo(f"topic {name} is kept {topic.retention}")


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Letters, digits and . _ - %.")],
    *,
    queues: Annotated[int, typer.Option(help="0: the broker's default.")] = 0,
    forever: Annotated[bool, typer.Option(help="Keep messages without limit.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Keep the last message of each key.")
    ] = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Create a topic; the same call again changes nothing."""
    retention = _retention(forever=forever, compact=compact) or "transient"
    topic = ask(broker, lambda admin: admin.create_topic(name, queues=queues, retention=retention))
    typer.echo(f"topic {name} has {topic.queues} queues")


def _retention(*, forever: bool, compact: bool) -> str:
    if forever and compact:
        raise typer.BadParameter("use --forever or --compact, not both")
    return "forever" if forever else "compact" if compact else ""


@commands.command("add-queues")
def add_queues(
    name: Name,
    *,
    queues: Annotated[int, typer.Option("--to", help="How many the topic shall have in all.")],
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Add queues to a topic while it is in use. Keys may then belong to other queues."""
    topic = ask(broker, lambda admin: admin.add_queues(name, queues))
    typer.echo(f"topic {name} has {topic.queues} queues")


@commands.command()
def spread(
    name: Name,
    *,
    queues: Annotated[int, typer.Option(help="How many in all groups together.")],
    forever: Annotated[bool, typer.Option(help="Keep messages without limit.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Keep the last message of each key.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on where an earlier call was interrupted."),
    ] = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Spread a topic over the broker groups that the address names. New queues go to groups that have none."""
    from headrace_mq.admin.spread.division import spread_topic

    retention = _retention(forever=forever, compact=compact)
    quiet()
    try:
        plan = asyncio.run(spread_topic(broker, name, queues, retention=retention, resume=resume))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--broker") from error
    for group, mine in plan.items():
        typer.echo(f"topic {name}: group {group} has queues {_runs(mine)}")


def _runs(numbers: list[int]) -> str:
    """Writes ascending numbers as 0-3, 8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@commands.command()
def freeze(
    name: Name,
    *,
    queue: Queues = None,
    writing: Writing = False,
    reading: Reading = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Freeze queues for writing, for reading, or both; holds across restarts."""
    if not (writing or reading):
        raise typer.BadParameter("say --writing, --reading, or both", param_hint="--writing")
    topic = ask(
        broker, lambda admin: admin.freeze(name, queue or (), writing=writing, reading=reading)
    )
    _say_frozen(topic)


@commands.command()
def thaw(
    name: Name,
    *,
    queue: Queues = None,
    writing: Writing = False,
    reading: Reading = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Open frozen queues again, for both unless one is named."""
    both = not (writing or reading)
    topic = ask(
        broker,
        lambda admin: admin.thaw(
            name, queue or (), writing=writing or both, reading=reading or both
        ),
    )
    _say_frozen(topic)


@commands.command()
def delete(
    name: Name,
    *,
    keep: Annotated[
        int, typer.Option(help="Delete only the queues from this number on; 0: the topic.")
    ] = 0,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Report what would be deleted and what prevents it; change nothing."
        ),
    ] = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Delete a topic or its last queues, once they are frozen for both and consumed by all groups.

    Exit status 1 if a dry run finds an obstacle.
    """
    answer = ask(broker, lambda admin: admin.delete_queues(name, keep, dry_run=dry_run))
    if as_json:
        print_json(answer)
    else:
        if dry_run:
            print_table(
                ("queue", "messages", "hindered, because it"),
                ((q.queue_id, q.end - q.first, "; ".join(q.obstacles)) for q in answer.queues),
            )
        _say_deleted(name, keep, answer)
    raise typer.Exit(1 if any(queue.obstacles for queue in answer.queues) else 0)


def _say_deleted(name: str, keep: int, answer: Any) -> None:
    what = f"queues from {keep} on of topic {name}" if keep else f"topic {name}"
    messages = sum(queue.end - queue.first for queue in answer.queues)
    if answer.deleted:
        typer.echo(f"deleted: {what} with {messages:,} messages")
    elif any(queue.obstacles for queue in answer.queues):
        typer.echo(f"nothing was deleted; {what} cannot go yet")
    else:
        typer.echo(f"nothing was deleted; without --dry-run {what} goes, {messages:,} messages")


def _say_frozen(topic: Any) -> None:
    frozen = frozen_queues(topic.unwritable, topic.unreadable)
    typer.echo(f"topic {topic.topic}: {f'frozen for {frozen}' if frozen else 'nothing is frozen'}")
