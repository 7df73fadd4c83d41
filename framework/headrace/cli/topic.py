"""`headrace topic`: the topics of a broker and what their queues hold."""

import asyncio
from typing import Annotated

import typer

from headrace.cli.options import BrokerAddress

__all__ = ["commands"]

commands = typer.Typer(help="Topics and their queues.", no_args_is_help=True)


@commands.command("list")
def list_topics(*, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List every topic with the number of its queues and of the messages they hold."""
    from rich.console import Console
    from rich.table import Table

    async def ask() -> list[tuple[str, int, str, int]]:
        from headrace_mq.admin.client import AdminClient

        async with AdminClient(broker) as admin:
            topics = await admin.topics()
            ranges = await admin.ranges([topic.topic for topic in topics])
        held: dict[str, int] = {}
        for one in ranges:
            held[one.topic] = held.get(one.topic, 0) + one.end - one.first
        return [(t.topic, t.queues, t.retention, held.get(t.topic, 0)) for t in topics]

    table = Table("topic", "queues", "kept", "messages", box=None)
    for name, queues, retention, messages in sorted(asyncio.run(ask())):
        table.add_row(name, str(queues), retention, f"{messages:,}")
    Console().print(table)


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Letters, digits and . _ - %.")],
    *,
    queues: Annotated[int, typer.Option(help="0: the broker's default.")] = 0,
    forever: Annotated[bool, typer.Option(help="Keep messages without limit.")] = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Create a topic; the same call again changes nothing."""

    async def ask() -> int:
        from headrace_mq.admin.client import AdminClient

        async with AdminClient(broker) as admin:
            topic = await admin.create_topic(
                name, queues=queues, retention="forever" if forever else "transient"
            )
        return topic.queues

    typer.echo(f"topic {name} has {asyncio.run(ask())} queues")
