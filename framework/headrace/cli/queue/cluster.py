"""`headrace cluster`: shows a group of brokers, as its record has it, changes who leads and who acknowledges, and who is in it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json, quiet
from headrace.cli.tables import print_table
from headrace.errors import HeadraceError
from headrace.figures.cluster import (
    SWITCH_S_MAX,
    RecordPlace,
    ack_shown,
    group_shown,
    kept,
    later,
    look,
    replica_shown,
)

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.cluster.record import GroupRecord, Proposal, Registration
    from headrace_mq.protocol.names.routes import RoutesAnswer

__all__ = ["ACK_S_MAX", "Acknowledging", "Cluster", "Group", "commands"]

# A broker that runs takes a connection at once, also over a slow network.
_REACH_S = 1
# A change of the record may be refused because another one came first; of these few in a row are no chance.
_TRIES_MAX = 5
# Of the tables of brokers.
_KNOWN = ("cluster", "group", "broker", "role", "epoch", "bytes", "said", "addresses")
_COLUMNS = ("broker", "in sync", "reported", "epoch", "bytes", "lacks")

# How long replicas may take to have what the leader acknowledged alone: they are in sync, so seconds at most.
ACK_S_MAX = 60
_LOOK_S = 0.1
_PRICE = """\
The leader will acknowledge a message once its own disk has it, and not wait for the others. Messages are acknowledged sooner. The price:
- If the leader's process, machine or network is lost, another broker leads within seconds. What that one does not have yet is lost,
  though it was acknowledged. Consumers may have handled such messages, and find other ones at their offsets.
- A leader that is cut off from the others goes on to acknowledge messages for some seconds. All of them are lost.
- --min-in-sync does not count: the leader acknowledges alone even if no other broker is there.
A broker that comes back keeps what it has to cut: see `headrace store lost`."""


class Acknowledging(StrEnum):
    """Who must have a message before it is acknowledged."""

    LEADER = "leader"
    IN_SYNC = "in-sync"


commands = typer.Typer(help="Brokers that form a group.", no_args_is_help=True)

Record = Annotated[
    str, typer.Option("--record", envvar="HEADRACE_RECORD", help="Where the record is: postgresql://… or etcd://….")
]  # fmt: skip
Cluster = Annotated[str, typer.Option("--cluster", help="The name of the cluster.")]
Group = Annotated[str, typer.Option("--group", envvar="HEADRACE_GROUP", help="The name of the group.")]  # fmt: skip


@commands.callback()
def cluster() -> None:
    """Brokers that form a group."""


@commands.command()
def status(
    *, record: Record, cluster: Cluster = "default", group: Group = "g1", as_json: AsJson = False
) -> None:
    """Show who leads a group and which brokers are in sync; exit status 2 if the record does not answer."""
    found, known = asyncio.run(look(RecordPlace(record, cluster, group)))
    members = sorted(one.name for one in found.in_sync)
    if as_json:
        print_json(group_shown(found, known))
        return
    rows = [
        ("leader", found.leader),
        ("epoch", f"{found.epoch:,}"),
        ("changes of the record", f"{found.version:,}"),
        ("in sync", " ".join(members)),
        ("acknowledged by", ack_shown(found)),
        ("id of the group", found.group_id),
    ]
    if found.epoch == found.lossy > found.unclean:
        rows.append(("may have lost messages", f"in epoch {found.lossy:,}"))
    if found.unclean:
        rows.append(("promoted with loss", f"in epoch {found.unclean:,}"))
    print_table(("", ""), rows)
    print_table(_COLUMNS, _rows(found, known))


@commands.command()
def remove(
    replica: Annotated[str, typer.Argument(help="The broker, HOST:PORT, as `status` shows it.")],
    *,
    record: Record,
    cluster: Cluster = "default",
    group: Group = "g1",
) -> None:
    """Take a broker that will not come back out of a group; exit status 2 if it leads, or still runs."""
    found = asyncio.run(_remove(replica, RecordPlace(record, cluster, group)))
    members = " ".join(sorted(one.name for one in found.in_sync))
    typer.echo(f"{replica} is no broker of the group any more; in sync: {members}")


@commands.command()
def brokers(
    *,
    nameservers: Annotated[
        str,
        typer.Option(
            "--nameservers",
            envvar="HEADRACE_NAMESERVERS",
            help="HOST:PORT,HOST:PORT of the name servers; with TLS tls://HOST:PORT?ca=FILE.",
        ),
    ],
    cluster: Annotated[
        str, typer.Option("--cluster", help="Of this cluster alone.", show_default="all")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the brokers that each name server knows; exit status 2 if a name server does not answer."""
    from headrace_mq.admin.name_servers import ask_name_servers

    quiet()
    try:
        found = asyncio.run(ask_name_servers(nameservers, cluster))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--nameservers") from error
    silent = {name: str(known) for name, known in found.items() if isinstance(known, Exception)}
    if as_json:
        told = {name: known for name, known in found.items() if name not in silent}
        print_json({**told, **{name: {"error": error} for name, error in silent.items()}})
    else:
        for name, known in found.items():
            _show_known(name, known)
    if silent:
        raise typer.Exit(2)


def _show_known(name: str, known: "RoutesAnswer | Exception") -> None:
    if isinstance(known, Exception):
        typer.echo(f"{name}: no answer, {known}")
        return
    typer.echo(
        f"{name}: {len(known.brokers):,} broker{'' if len(known.brokers) == 1 else 's'}{'' if known.ready else ', and it is not ready yet'}"
    )
    rows = [
        (
            one.cluster, one.group, one.broker, one.role, one.epoch, one.position,
            f"{one.age_ms / 1_000:,.1f} s ago", " ".join(one.addresses),
        )
        for one in known.brokers
    ]  # fmt: skip
    if rows:
        print_table(_KNOWN, rows)


async def _remove(replica: str, place: RecordPlace) -> "GroupRecord":
    from headrace_mq.cluster.operations import removal
    from headrace_mq.cluster.record import Refused

    async with kept(place) as keeper:
        for _ in range(_TRIES_MAX):
            found, known = await keeper.read(), await keeper.registered()
            proposal = removal(found, known, replica)
            with suppress(Refused):
                if proposal is not None:
                    found = await keeper.propose(proposal, found.group_id)
                # Only then: a report of a member that is waited for must stay to be seen.
                await keeper.forget(replica)
                return found
    raise HeadraceError("the group's record changes all the time; repeat this in a moment")


@commands.command()
def promote(
    replica: Annotated[str, typer.Argument(help="The broker, HOST:PORT, as `status` shows it.")],
    *,
    record: Record,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Do it, though acknowledged messages are lost.")
    ] = False,
    cluster: Cluster = "default",
    group: Group = "g1",
) -> None:
    """Let a broker lead that is not in sync, where none in sync comes back; exit status 2 if it may not, or nothing was changed."""
    place = RecordPlace(record, cluster, group)
    done = asyncio.run(_promote(replica, place, accept_loss=accept_loss))
    after = asyncio.run(later(done, place))
    if after is None:
        raise HeadraceError(
            f"{replica} is to lead from epoch {done.epoch:,} on, and does not yet; see its log, and `headrace cluster status`"
        )
    typer.echo(
        f"{after.leader} leads in epoch {after.epoch:,}, without what it lacked; start the others, they cut what it does not have, and"
        " keep that in files that `headrace store lost` shows."
        " Then `headrace cluster settle` ends the alarm. Where it does not serve, its log says what it waits for: with --min-in-sync 2"
        " that is a second broker, or a start with --min-in-sync 1"
    )


@commands.command()
def settle(*, record: Record, cluster: Cluster = "default", group: Group = "g1") -> None:
    """End the alarm that a broker was promoted with loss, once you have dealt with it."""
    before = asyncio.run(_settle(RecordPlace(record, cluster, group)))
    if before:
        typer.echo(f"settled: a broker was promoted with loss in epoch {before:,}")
    else:
        typer.echo("nothing to settle: no broker was promoted with loss")


async def _promote(replica: str, place: RecordPlace, *, accept_loss: bool) -> "GroupRecord":
    from headrace_mq.cluster.operations import losses, promotion
    from headrace_mq.cluster.record import Refused

    async with kept(place) as keeper:
        found, known = await keeper.read(), await keeper.registered()
        proposal = promotion(found, known, replica)
        print_table(_COLUMNS, _rows(found, known))
        lost = losses(found, known, replica)
        rows = [(one.member.name, f"{one.lost_bytes:,}{' or more' * one.or_more}") for one in lost]
        unknown = found.in_sync - {one.member for one in lost}
        rows += [(one.name, "not known: it has not reported") for one in sorted(unknown)]
        print_table(("in sync", f"bytes that {replica} lacks of it"), rows)
        await _refuse_those_that_listen(found, known)
        if not accept_loss:
            raise HeadraceError(
                "nothing was changed. Start a broker that is in sync, if its disk is left: then nothing is lost. If none is,"
                f" repeat this with --accept-loss: {replica} leads then, and what it lacks is lost, and what came after the"
                " last reports. First make sure that none in sync runs any more: one that does not reach the record goes on to"
                " acknowledge messages, which are lost as well"
            )
        try:
            return await keeper.propose(proposal, found.group_id)
        except Refused as error:
            raise HeadraceError(
                f"{error}; look at it again, and repeat this if it is still needed"
            ) from error


async def _refuse_those_that_listen(found: "GroupRecord", known: "Sequence[Registration]") -> None:
    """Refuses while a broker in sync that does not report takes connections: it may go on to acknowledge messages."""
    from headrace_mq._net.address import BrokerAddress
    from headrace_mq.cluster.operations import is_silent

    # One with an empty disk may be there under the old name, and report that.
    reports = {one.member.name for one in known if not is_silent(one)}
    for name in sorted(one.name for one in found.in_sync if one.name not in reports):
        host, port = BrokerAddress.parse(name).places[0]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_REACH_S):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            raise HeadraceError(
                f"nothing was changed. {name} is in sync and does not reach the record, but it listens: it may go on to acknowledge"
                " messages. Mend its way to the record, and nothing is lost; else stop it, and repeat this"
            )


async def _settle(place: RecordPlace) -> int:
    from headrace_mq.cluster.operations import settlement
    from headrace_mq.cluster.record import Refused

    async with kept(place) as keeper:
        for _ in range(_TRIES_MAX):
            found = await keeper.read()
            proposal = settlement(found)
            with suppress(Refused):
                if proposal is not None:
                    await keeper.propose(proposal, found.group_id)
                return found.unclean
    raise HeadraceError("the group's record changes all the time; repeat this in a moment")


@commands.command()
def switchover(
    *,
    record: Record,
    broker: BrokerAddress = "127.0.0.1:9876",
    to: Annotated[
        str,
        typer.Option("--to", help="The replica that shall lead, HOST:PORT; else any one in sync."),
    ] = "",
    cluster: Cluster = "default",
    group: Group = "g1",
) -> None:
    """Let a replica lead, for example before you stop the leader's machine; exit status 2 if none does in time."""
    place = RecordPlace(record, cluster, group)
    before, _ = asyncio.run(look(place))
    chosen = ask(broker, lambda admin: admin.hand_over(to))
    after = asyncio.run(later(before, place))
    if after is None:
        raise HeadraceError(
            f"{before.leader} still leads: {chosen} did not take over in {SWITCH_S_MAX} s; see"
            " `headrace cluster status` and the brokers' logs"
        )
    typer.echo(f"{after.leader} leads in epoch {after.epoch:,}; before, {before.leader} did")


@commands.command()
def ack(
    who: Annotated[
        Acknowledging, typer.Argument(help="Who must have a message before it is acknowledged.")
    ],
    *,
    record: Record,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    cluster: Cluster = "default",
    group: Group = "g1",
) -> None:
    """Choose whether the leader acknowledges alone, which is faster and may lose messages; exit status 2 if that may not be."""
    place = RecordPlace(record, cluster, group)
    if who is Acknowledging.LEADER:
        _acknowledge_alone(place, yes=yes)
        return
    changed, found = asyncio.run(_change_ack(place, "in_sync"))
    if not changed and found.ack == "in_sync":
        typer.echo("nothing to change: all brokers in sync acknowledge")
        return
    typer.echo(
        "all brokers in sync acknowledge; waiting until they have what the leader acknowledged alone"
    )
    epoch = asyncio.run(_all_acknowledge(place))
    if epoch is None:
        raise HeadraceError(
            f"the leader {found.leader} has not seen within {ACK_S_MAX} s that all brokers in sync have what it acknowledged alone, so"
            " a failover may still lose messages. It goes on by itself; see `headrace cluster status`, and its log"
        )
    typer.echo("done: all brokers in sync have everything, and a failover loses no message")
    if epoch != found.epoch:
        typer.echo(
            f"another broker was elected meanwhile, in epoch {epoch:,}: what the leader before it has acknowledged alone in the last"
            " seconds, and does so until it has read the record again, may be lost"
        )


def _acknowledge_alone(place: RecordPlace, *, yes: bool) -> None:
    found, known = asyncio.run(look(place))
    if _ack_change(found, known, "leader") is None:
        typer.echo("nothing to change: the leader acknowledges alone")
        return
    typer.echo(_PRICE)
    if not yes:
        typer.confirm("let the leader acknowledge alone?", abort=True)
    asyncio.run(_change_ack(place, "leader"))
    typer.echo(
        "the leader acknowledges alone within a second; `headrace broker show` says what a failover may lose at that moment, and"
        " `headrace cluster ack in-sync` ends it"
    )


def _ack_change(
    found: "GroupRecord", known: "Sequence[Registration]", wanted: str
) -> "Proposal | None":
    from headrace_mq.cluster.operations import acknowledgement
    from headrace_mq.errors import MessageQueueError

    try:
        return acknowledgement(found, known, wanted)
    except MessageQueueError as error:
        raise HeadraceError(str(error)) from error


async def _change_ack(place: RecordPlace, wanted: str) -> "tuple[bool, GroupRecord]":
    """Returns whether the record was changed, and what it says now."""
    from headrace_mq.cluster.record import Refused

    async with kept(place) as keeper:
        for _ in range(_TRIES_MAX):
            found = await keeper.read()
            proposal = _ack_change(found, await keeper.registered(), wanted)
            if proposal is None:
                return False, found
            with suppress(Refused):
                return True, await keeper.propose(proposal, found.group_id)
    raise HeadraceError("the group's record changes all the time; repeat this in a moment")


async def _all_acknowledge(place: RecordPlace) -> int | None:
    """Returns the epoch in which a leader ended the way back; None: none did in time."""
    with suppress(TimeoutError):
        async with kept(place) as keeper, asyncio.timeout(ACK_S_MAX):
            while True:
                found = await keeper.read()
                if found.ack == "in_sync":
                    return found.epoch
                await asyncio.sleep(_LOOK_S)
    return None


def _rows(record: "GroupRecord", known: "Sequence[Registration]") -> list[tuple[object, ...]]:
    """One row for each broker that reported, or is in the set."""
    rows: list[tuple[object, ...]] = []
    for one in known:
        shown = replica_shown(record, known, one)
        in_sync = "yes" if shown["in_sync"] else "no"
        reported = f"{shown['reported_ms'] / 1_000:,.0f} s ago"
        rows.append(
            (shown["name"], in_sync, reported, shown["epoch"], shown["bytes"], shown["lacks_bytes"])
        )
    silent = {one.name for one in record.in_sync} - {one.member.name for one in known}
    return sorted([*rows, *((name, "yes", "", None, None, None) for name in silent)], key=str)
