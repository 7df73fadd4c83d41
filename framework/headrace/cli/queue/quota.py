"""`headrace quota`: shows and sets how much clients and topics may send and read."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.amounts import size_bytes
from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.protocol.limits import Rates

__all__ = ["ClientQuota", "TopicQuota", "commands", "default_rates"]

commands = typer.Typer(
    help="How much clients and topics may send and read in a second.", no_args_is_help=True
)

Kind = Annotated[str, typer.Argument(help="'client' or 'topic'.")]
Name = Annotated[
    str, typer.Argument(help="The client's host as `producer list` shows it; a topic.")
]

_RATES: Final = {
    "produce": "produce_bytes",
    "produce-messages": "produce_messages",
    "fetch": "fetch_bytes",
    "fetch-messages": "fetch_messages",
}

ClientQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--client-quota", metavar="RATE", show_default="no limit",
        help="What a client may do in a second: produce=10MiB, fetch=20MiB, produce-messages=5000,"
        " fetch-messages=5000; repeat it.",
    ),
]  # fmt: skip
TopicQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-quota", metavar="RATE", show_default="no limit",
        help="What may be done with a topic in a second, by all clients together.",
    ),
]  # fmt: skip


@commands.command("set")
def set_quota(
    kind: Kind,
    name: Name,
    rates: Annotated[
        list[str],
        typer.Argument(
            metavar="RATE...",
            help="Per second: produce=10MiB, fetch=20MiB, produce-messages=5000,"
            " fetch-messages=5000. What is not named has no limit.",
        ),
    ],
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Give a client or a topic a quota of its own; holds at once, and across restarts."""
    wanted = _rates_of(rates)
    ask(broker, lambda admin: admin.set_quota(_kind(kind), name, wanted))
    typer.echo(f"{kind} {name}: {_told(wanted)}")


@commands.command()
def remove(kind: Kind, name: Name, *, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Take a quota away again; the broker's default holds then."""
    answer = ask(broker, lambda admin: admin.remove_quota(_kind(kind), name))
    held = [one.rates for one in answer.quotas if one.kind == kind and not one.name]
    typer.echo(f"{kind} {name}: {_told(held[0]) if held else 'no limit'}")


@commands.command("list")
def list_quotas(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List all quotas, and whom they held up in the last ten minutes."""
    answer = ask(broker, lambda admin: admin.quotas())
    if as_json:
        print_json(answer)
        return
    print_table(
        ("kind", "name", "in a second"),
        ((one.kind, one.name or "(default)", _told(one.rates)) for one in answer.quotas),
    )
    if answer.throttled:
        print_table(
            ("kind", "name", "held up", "requests", "waited", "owes"),
            (
                (
                    one.kind, one.name, one.way, one.requests, f"{one.waited_ms:,} ms",
                    f"{one.owed_ms:,} ms",
                )
                for one in answer.throttled
            ),
        )  # fmt: skip


def default_rates(*, client: list[str] | None, topic: list[str] | None) -> dict[str, int]:
    """Returns the settings of a broker for its default quotas.

    Raises:
        typer.BadParameter: one is no rate; the sentence shows what is.
    """
    given = (("client", client), ("topic", topic))
    return {
        f"{kind}_{rate}": number
        for kind, texts in given
        if texts
        for rate, number in _numbers(texts).items()
    }


def _rates_of(texts: list[str]) -> "Rates":
    from headrace_mq.protocol.limits import Rates

    return Rates(**_numbers(texts))


def _numbers(texts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, _, amount = text.partition("=")
        if name not in _RATES:
            raise typer.BadParameter(
                f"{text!r} is no rate; write {', '.join(f'{one}=…' for one in _RATES)}"
            )
        if name.endswith("messages") and not amount.isdecimal():
            raise typer.BadParameter(f"{text!r}: write how many messages, such as {name}=5000")
        number = int(amount) if name.endswith("messages") else size_bytes(amount)
        if number < 1:
            raise typer.BadParameter(f"{text!r} lets nothing through; leave it out for no limit")
        found[_RATES[name]] = number
    return found


def _kind(text: str) -> Any:
    if text not in {"client", "topic"}:
        raise typer.BadParameter(f"a quota is for a client or a topic, not for {text!r}")
    return text


def _told(rates: "Rates") -> str:
    named = ((name, getattr(rates, field)) for name, field in _RATES.items())
    told = [
        f"{name} {rate:,}{'' if name.endswith('messages') else ' bytes'}"
        for name, rate in named
        if rate
    ]
    return ", ".join(told) or "no limit"
