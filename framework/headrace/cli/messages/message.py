"""`headrace message`: sends, shows, finds and watches single messages of a broker."""

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.messages import dead_letters
from headrace.cli.messages.trace import trace
from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, milliseconds, print_json, quiet
from headrace.cli.queue.group import DryRun, show_moves
from headrace.cli.tables import print_table
from headrace.figures.records import (
    Senders,
    content,
    described,
    id_of,
    messages_from,
    sender_of,
    text_of,
    word,
    words,
)
from headrace.figures.search import MessageFilter, Search, last_that_fit, search
from headrace.figures.words import when

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the queue
    from headrace_mq.message import Record

__all__ = ["commands"]

commands = typer.Typer(help="Single messages.", no_args_is_help=True)
commands.command()(dead_letters.dead)
commands.command()(dead_letters.resend)
commands.command()(dead_letters.purge)
commands.command()(trace)

Filter = Annotated[
    str,
    typer.Option("--filter", metavar="FILTER", help="Only those that fit, as `search` takes it."),
]
Topic = Annotated[str, typer.Argument(help="The topic's name.")]


@commands.command()
def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="TOPIC:QUEUE:OFFSET.")],
    *,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Show one message. Exit status 1 if it is not there (any more), or no reader can decode it."""

    async def question(admin: Any) -> tuple[Any, Senders, Any]:
        record = await admin.message(message_id)
        if record is None:
            return None, {}, await admin.batch_of(message_id)
        return record, await admin.producers([record]), None

    try:
        record, senders, batch = ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ID") from error
    if batch is not None and batch.damage:
        _show_undecodable(batch.header, batch.damage, as_json=as_json)
        raise typer.Exit(1)
    if record is None:
        typer.echo(f"there is no message {message_id}, or it was deleted by age", err=True)
        raise typer.Exit(1)
    told = described(record)
    if as_json:
        print_json(told | sender_of(record, senders))
        return
    sender = senders.get(record.producer_id)
    rows = [
        ("id", message_id),
        ("key", word(record.key)),
        ("tag", word(record.tag)),
        *((f"header {word(name)}", word(held)) for name, held in told["headers"].items()),
        ("born (UTC)", when(record.born_at_ms)),
        ("stored (UTC)", when(record.stored_at_ms)),
        ("sent from", sender.address if sender else ""),
        ("sent by", f"{word(sender.client_id)} ({word(sender.software)})" if sender else ""),
        ("bytes", f"{told['bytes']:,}"),
    ]
    print_table(("", ""), ((name, value) for name, value in rows if value))
    typer.echo(f"hidden: {told['hidden']}" if told["hidden"] else text_of(record.body))


def _show_undecodable(header: Any, damage: str, *, as_json: bool) -> None:
    told = {
        "first offset": header.base_offset,
        "messages": header.count,
        "bytes": header.length,
        "codec": header.codec,
        "bytes before compression": header.plain_bytes,
        "producer id": header.producer_id,
        "born (UTC)": when(header.born_first_ms),
        "stored (UTC)": when(header.appended_at_ms),
        "damage": damage,
    }
    if as_json:
        print_json(
            {name.replace(" ", "_").replace("_(UTC)", ""): fact for name, fact in told.items()}
        )
        return
    print_table(("", ""), ((name, str(fact)) for name, fact in told.items()))
    typer.echo(
        "no reader can decode this batch; readers leave it out and go on behind it", err=True
    )


@commands.command()
def skip(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="TOPIC:QUEUE:OFFSET.")],
    *,
    group: Annotated[str, typer.Option(help="The group that goes on behind it.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Let a group go on behind a message at which it stands; its consumers must be stopped."""

    async def question(admin: Any) -> Any:
        from headrace_mq.errors import InvalidArgument
        from headrace_mq.message_id import MessageId

        (topic, number), offset = MessageId.parse(message_id)
        batch = await admin.batch_of(message_id)
        if batch is None:
            return None
        first, end = offset, offset + 1
        if batch.damage:
            # Of such a batch no message can be told from the others.
            first, end = batch.header.base_offset, batch.header.next_offset
        stands = (await admin.offsets(group, [topic]))[topic, number]
        if not first <= stands < end:
            where = "nowhere" if stands < 0 else f"at offset {stands}"
            raise InvalidArgument(
                f"group {group} stands {where} in {topic}/{number}, not at {message_id}: look at it with"
                " `headrace group show`; `headrace group reset` moves it to any message"
            )
        return await admin.reset_offsets(
            group, "offset", end, topics=[topic], queues=[number], dry_run=dry_run
        )

    try:
        answer = ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ID") from error
    if answer is None:
        typer.echo(f"there is no message {message_id}, or it was deleted by age", err=True)
        raise typer.Exit(1)
    show_moves(f"group {group}", answer, as_json=as_json)


@commands.command()
def find(
    topic: Topic,
    key: Annotated[str, typer.Argument(help="The messages' key, exactly.")],
    *,
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Stored then or later; as --time takes.")
    ] = "0",
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Stored before that.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Show at most this many.")] = 100,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Find messages by their key, in the order in which they were stored."""
    times: dict[str, int] = {"from_ms": milliseconds(since, "--from")}
    if until is not None:
        times["to_ms"] = milliseconds(until, "--to")

    async def question(admin: Any) -> tuple[list[Any], Senders]:
        records = await admin.find(topic, key, limit=limit, **times)
        return records, await admin.producers(records)

    try:
        records, senders = ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from error
    if as_json:
        print_json([described(record) | sender_of(record, senders) for record in records])
        return
    print_table(
        ("id", "stored (UTC)", "key", "tag", "sent from", "body"),
        (
            (
                id_of(one), when(one.stored_at_ms), *words(one),
                senders[one.producer_id].address if one.producer_id in senders else "",
                content(one),
            )
            for one in records
        ),
    )  # fmt: skip


@commands.command("list")
def list_messages(
    topic: Topic,
    *,
    queue: Annotated[int, typer.Option("--queue", help="The queue's number.")] = 0,
    offset: Annotated[int | None, typer.Option(min=0, help="From this offset on.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Stored then or later; as --time takes."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Show at most this many, up to 1,000.")] = 100,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """List the messages of a queue from an offset or a time on, without being a consumer."""
    if (offset is None) == (since is None):
        raise typer.BadParameter("say --offset, or --from", param_hint="--offset")
    since_ms = None if since is None else milliseconds(since, "--from")

    async def question(admin: Any) -> list[Any]:
        return await messages_from(
            admin, topic, queue, offset=offset, since_ms=since_ms, limit=limit
        )

    try:
        records = ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from error
    if as_json:
        print_json([described(record) for record in records])
    else:
        _show(records, as_json=False)


@commands.command()
def tail(
    topic: Topic,
    *,
    queue: Annotated[
        list[int] | None,
        typer.Option("--queue", help="A queue's number; repeat it for more. Default: all."),
    ] = None,
    last: Annotated[int, typer.Option("--last", "-n", help="How many messages.")] = 10,
    condition: Filter = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep showing new messages until interrupted.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, for programs.")
    ] = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Show the last messages of a topic, without being a consumer."""
    chosen = _condition(condition) if condition else None

    async def question(admin: Any) -> None:
        # Where the queues end, before their last messages are looked at: none is left out between.
        end = await admin.tail(topic, last if chosen is None else 0, queue or ())
        records = end.records
        if chosen is not None:
            found = await last_that_fit(admin, topic, chosen, last, queue or ())
            records = [one for one in found.records if one.offset < end.behind[one.queue]]
            if not as_json:
                told = f"searched {found.searched:,} of {found.of:,} messages, the newest of each queue"
                typer.echo(told, err=True)
        if not follow:
            _show(records, as_json=as_json)
            return
        _print_lines(records, as_json=as_json)
        async for record in admin.follow(end.behind):
            _print_lines(chosen.select([record]) if chosen else [record], as_json=as_json)

    try:
        ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--last") from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@commands.command("search")
def search_messages(
    topic: Topic,
    condition: Annotated[
        str,
        typer.Argument(
            metavar="FILTER", help="Such as \"body.amount > 100 AND _key LIKE 'acc%'\"."
        ),
    ],
    *,
    queue: Annotated[
        int | None, typer.Option("--queue", help="Only this queue. Default: all.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Stored then or later; as --time takes."),
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="PLACE", help="Go on where the search before ended.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Show at most this many.")] = 100,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Search a topic for messages that fit a filter, a piece of it at a time."""
    wanted = Search(
        topic,
        _condition(condition),
        queue=queue,
        since_ms=None if since is None else milliseconds(since, "--from"),
        after=after,
        limit=limit,
    )
    try:
        found = ask(broker, lambda admin: search(admin, wanted))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--after") from error
    if as_json:
        print_json(
            {
                "messages": [described(one) for one in found.records],
                "searched": found.searched,
                "of": found.of,
                "next": found.next or None,
            }
        )
        return
    _show(found.records, as_json=False)
    told = f"searched {found.searched:,} of {found.of:,} messages, queue by queue"
    typer.echo(f"{told}; go on with --after {found.next}" if found.next else told)


@commands.command()
def send(
    topic: Topic,
    body: Annotated[
        str | None, typer.Argument(help="The body as text; without it, standard input.")
    ] = None,
    *,
    key: Annotated[str, typer.Option(help="Routing key.")] = "",
    tag: Annotated[str, typer.Option(help="A word to filter by.")] = "",
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Repeat it for more.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of standard input is a message.")
    ] = False,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Send a message, or one for each line of standard input; prints the ids once they are durable."""
    if lines and body is not None:
        raise typer.BadParameter("--lines reads standard input; give no BODY", param_hint="--lines")
    from headrace_mq.client.producer.producer import Producer
    from headrace_mq.message import Message
    from headrace_mq.message_id import MessageId

    if body is not None:
        bodies = [body.encode()]
    elif lines:
        bodies = [line.rstrip(b"\r\n") for line in sys.stdin.buffer]
    else:
        bodies = [sys.stdin.buffer.read()]
    quiet()
    headers = dict(_header(text) for text in header or ())

    async def deliver() -> list[MessageId]:
        messages = [
            Message(topic=topic, body=one, key=key, tag=tag, headers=headers) for one in bodies
        ]
        async with Producer(broker) as producer:
            results = await producer.send_many(messages)
        return [MessageId(result.queue, result.offset) for result in results]

    try:
        ids = asyncio.run(deliver())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print_json([str(one) for one in ids])
    else:
        for one in ids:
            typer.echo(str(one))


def _condition(text: str) -> MessageFilter:
    try:
        return MessageFilter(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="FILTER") from error


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value


def _show(records: "Iterable[Record]", *, as_json: bool) -> None:
    if as_json:
        _print_lines(records, as_json=True)
    else:
        print_table(
            ("id", "stored (UTC)", "key", "tag", "body"),
            ((id_of(one), when(one.stored_at_ms), *words(one), content(one)) for one in records),
        )


def _print_lines(records: "Iterable[Record]", *, as_json: bool) -> None:
    import msgspec

    for one in records:
        if as_json:
            line = msgspec.json.encode(described(one)).decode()
        else:
            cells = (id_of(one), when(one.stored_at_ms), *words(one), content(one))
            line = "  ".join(cell for cell in cells if cell)
        print(line, flush=True)
