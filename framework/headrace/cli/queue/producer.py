"""`headrace producer`: lists the clients that send messages to a broker."""

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.tables import print_table
from headrace.figures.words import when

__all__ = ["commands"]

commands = typer.Typer(help="Connections that send messages.", no_args_is_help=True)


@commands.command("list")
def list_producers(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List the connections that have sent messages."""
    connections = ask(broker, lambda admin: admin.connections("producer"))
    if as_json:
        print_json(connections)
        return
    print_table(
        ("client", "user", "address", "software", "connected (UTC)", "messages", "bytes in", "bytes out", "held up"),
        (
            (
                one.client_id, one.user, one.address, one.software, when(one.since_ms), one.produced,
                one.received_bytes, one.sent_bytes, f"{one.throttled_ms:,} ms",
            )
            for one in connections
        ),
    )  # fmt: skip
