"""
`headrace top`: a live view of a broker, with rates; `--once` prints one page.

It uses requests that only read. A broker that stops to answer leaves the last page, with the reason below it, and the
view goes on when the broker is back.
"""

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import print_json
from headrace.cli.tables import print_table
from headrace.cli.top.page import KEYS, SORTS, page
from headrace.figures.rates import TopRates, rates
from headrace.figures.sample import TopSample, take_sample

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the queue
    from headrace.cli.top.screen import Screen
    from headrace_mq.admin.client import AdminClient

__all__ = ["top"]

# A person reads no faster, and each look costs the broker some milliseconds.
_EVERY_S_MIN: Final = 0.2
_EVERY_S_MAX: Final = 3_600.0
_CONNECT_MS: Final = 3_000
_TIMEOUT_MS: Final = 5_000


def _sort(text: str) -> str:
    if text not in SORTS:
        raise typer.BadParameter(f"use one of {', '.join(SORTS)}, not {text!r}")
    return text


Every = Annotated[
    float,
    typer.Option("--every", min=_EVERY_S_MIN, max=_EVERY_S_MAX, help="Seconds between two looks at the broker."),
]  # fmt: skip
Once = Annotated[bool, typer.Option("--once", help="Print one page of rates over one interval, and end.")]  # fmt: skip
Sort = Annotated[
    str,
    typer.Option("--sort", callback=_sort, help="'messages', 'bytes', 'lag' or 'name'; a key changes it."),
]  # fmt: skip
Rows = Annotated[
    int, typer.Option("--rows", min=1, help="With --once: how many rows of each table at most.")
]
AsLines = Annotated[
    bool,
    typer.Option("--json", help="A line of JSON for each interval; with --once one JSON value."),
]


def top(
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
    every: Every = 1.0,
    once: Once = False,
    sort: Sort = "messages",
    rows: Rows = 20,
    as_json: AsLines = False,
) -> None:
    """Watch a broker: rates of topics, groups and connections, lags, processor, memory, disk, replicas.

    The keys m, b, l and n sort by messages, bytes, lag and name; q ends it.
    """
    from headrace.cli.logs import configure_logs

    if not once and not as_json and not sys.stdout.isatty():
        raise typer.BadParameter(
            "standard output is no terminal; print one page with --once, or lines of JSON with --json",
            param_hint="--once",
        )
    configure_logs("console", "error")
    with suppress(KeyboardInterrupt):  # as `q` does
        asyncio.run(_watch(broker, every, once=once, sort=sort, rows=rows, as_json=as_json))


async def _watch(
    broker: str, every: float, *, once: bool, sort: str, rows: int, as_json: bool
) -> None:
    from headrace.cli.top.screen import Screen
    from headrace_mq.admin.client import AdminClient

    async with AdminClient(broker, timeout_ms=_TIMEOUT_MS, connect_ms=_CONNECT_MS) as admin:
        before = await take_sample(admin)
        if once:
            await asyncio.sleep(every)
            _print(rates(before, await take_sample(admin)), broker, sort, rows, as_json=as_json)
        elif as_json:
            await _print_lines(admin, before, every)
        else:
            with Screen() as screen, screen.listening():
                await _draw(admin, before, every, screen, broker, sort)


def _print(found: TopRates, address: str, sort: str, rows: int, *, as_json: bool) -> None:
    if as_json:
        print_json(_named(found))
        return
    shown = page(found, address=address, sort=sort, rows_max=rows)
    for line in shown.head:
        typer.echo(line)
    for each in shown.sections:
        typer.echo()
        print_table(each.columns, each.rows)
        if each.more:
            typer.echo(f" and {each.more:,} more; --rows shows more")


async def _print_lines(admin: "AdminClient", before: TopSample, every: float) -> None:
    import json

    while True:
        await asyncio.sleep(every)
        now = await take_sample(admin)
        print(json.dumps(_named(rates(before, now))), flush=True)
        before = now


async def _draw(
    admin: "AdminClient", before: TopSample, every: float, screen: "Screen", address: str, sort: str
) -> None:
    from headrace_mq.errors import MessageQueueError

    found, trouble = rates(before, before), ""
    loop = asyncio.get_running_loop()
    while True:
        look_at = loop.time() + every
        while loop.time() < look_at:
            screen.draw(page(found, address=address, sort=sort, rows_max=screen.rows_max), trouble)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look_at):
                    await screen.pressed.wait()
            for key in screen.taken():
                if key in "qQ":
                    return
                sort = KEYS.get(key.lower(), sort)
        try:
            now = await take_sample(admin)
        except MessageQueueError as error:
            trouble = f"no answer: {error}"
            continue
        found, before, trouble = rates(before, now), now, ""


def _named(value: Any) -> Any:
    """Tuples of rates are objects with the names of their fields."""
    if hasattr(value, "_asdict"):
        return {name: _named(one) for name, one in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [_named(one) for one in value]
    return round(value, 3) if isinstance(value, float) else value
