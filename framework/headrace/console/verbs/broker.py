"""
The verbs about the broker as a whole: show, connections, its settings, and the list of its audit; and figures of the overview.

Used by `catalogue`, and by the overview with its live figures.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from headrace.console.verbs.topic import PAGE_ROWS, paged
from headrace.console.verbs.verb import Given, Verb, VerbField
from headrace.figures.cluster import LOSS_MS, failover_loss
from headrace.figures.rates import TopRates, rates
from headrace.figures.sample import TopSample, take_sample
from headrace.figures.settings import chosen, settings_shown
from headrace.figures.words import size
from headrace_mq.access.audit import AuditEntry
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import NotPermitted

__all__ = ["BROKER", "figures", "look", "troubles"]

# Entries of the audit on one page.
ENTRIES_MAX: Final = 200
_DAY_S: Final = 86_400
_NONE: Final = "-"


async def look(admin: AdminClient) -> TopSample:
    """Returns what the overview shows of a broker at this moment: no state of single queues."""
    return await take_sample(admin, aged=5, with_queues=False)


def figures(found: TopRates) -> dict[str, str]:
    """Returns the figures of the overview in words, by their names.

    Args:
        found: what happened between two looks.
    """
    lag = sum(one.lag or 0 for one in found.groups)
    waits = max((one.lag_ms or 0 for one in found.groups), default=0)
    told = {"backlog": f"{lag:,}", "oldest": f"{waits / 1_000:,.1f} s" if waits else _NONE}
    broker = found.broker
    if broker is None:
        return told
    days = _days(broker.disk_free_bytes, broker.log_growth)
    return told | {
        "in": f"{broker.messages_in:,}",
        "in_bytes": f"{size(broker.bytes_in)}/s",
        "out": f"{broker.messages_out:,}",
        "out_bytes": f"{size(broker.bytes_out)}/s",
        "held": f"{broker.held:,}",
        "disk": _NONE if broker.disk_percent is None else f"{broker.disk_percent:.0f} %",
        "disk_free": _NONE if broker.disk_free_bytes is None else size(broker.disk_free_bytes),
        "days": days,
        "logs": size(broker.log_bytes),
        "growth": f"{size(broker.log_growth)}/s",
        "memory": _NONE if broker.memory_bytes is None else size(broker.memory_bytes),
        "cpu": _NONE if broker.cpu_percent is None else f"{broker.cpu_percent:.0f} %",
        "connections": f"{broker.connections:,}",
        "topics": f"{broker.topics:,}",
        "queues": f"{broker.queues:,}",
        "groups": f"{broker.groups:,}",
    }


def _days(free: int | None, growth: float) -> str:
    """How long the disk lasts if the logs grow on as now."""
    if free is None or growth < 1:
        return _NONE
    days = free / growth / _DAY_S
    return f"{days:,.1f}" if days < 10_000 else "> 9,999"


def troubles(sample: TopSample) -> list[str]:
    """Returns sentences about what an operator should look at; none: all is well."""
    status = sample.status
    if status is None:
        return list(sample.denied)
    told = [*sample.denied]
    if status.refuses:
        told.append(f"The broker takes no messages: {status.refuses}")
    elif status.shortage:
        told.append(f"The broker acknowledges nothing: {status.shortage}")
    if status.clock_alarm:
        told.append(status.clock_alarm)
    told += [
        f"Group {group} is near the limit of its backlog, or above it" for group in status.alarms
    ]
    if status.damaged:
        told.append(
            f"{status.damaged:,} places of the logs are damaged: {'; '.join(status.damage[:3])}"
        )
    if status.unrepaired:
        told.append(f"No other broker has sound bytes for {status.unrepaired:,} damaged places")
    told += [
        f"A failover may lose {failover_loss(one)}" for one in status.leads if one.loss_ms > LOSS_MS
    ]
    if status.paused:
        told.append(
            f"An operator paused {status.paused:,} groups: {', '.join(status.paused_groups[:10])}"
        )
    if status.compaction.trouble:
        told.append(status.compaction.trouble)
    told += [one.alarm for one in status.archive if one.alarm]
    told += [f"Group {one.group} has no members, and {one.lag:,} messages wait" for one in sample.groups if one.commits and one.lag and not one.members][:10]  # fmt: skip
    return told


async def _show(admin: AdminClient, _: Given) -> Any:
    sample = await look(admin)
    found = rates(sample, sample)
    broker = await admin.describe()
    software = found.broker.software if found.broker else None
    return {
        "broker": broker,
        "software": software,
        "figures": figures(found),
        "troubles": troubles(sample),
        "replicas": found.replicas,
        "waiting": await _waiting(admin),
        "furthest": sorted(found.groups, key=lambda one: -(one.lag or 0))[:5],
    }


async def _waiting(admin: AdminClient) -> dict[str, Any] | None:
    """Messages that are not due yet, and transactions that are not decided; None: this user may not read that."""
    with suppress(NotPermitted):
        return {"scheduled": await admin.scheduled(), "transactions": await admin.transactions()}
    return None


async def _connections(admin: AdminClient, given: Given) -> Any:
    found = sorted(await admin.connections(), key=lambda one: one.since_ms)
    shown, place = paged(found, given)
    return {"connections": shown, **place}


async def _config(admin: AdminClient, given: Given) -> Any:
    found = await settings_shown(admin)
    return chosen(found, given=given["given"], differing=given["differing"], search=given["search"])


async def _audit(admin: AdminClient, given: Given) -> Any:
    limit = max(1, min(ENTRIES_MAX, given["limit"]))

    def chosen(entry: AuditEntry) -> bool:
        return (
            (not given["by"] or entry.is_about(given["by"]))
            and given["action"] in {"", entry.action}
            and given["outcome"] in {"", entry.outcome}
        )

    any_is = not (given["by"] or given["action"] or given["outcome"])
    entries: Sequence[AuditEntry] = await admin.audit(
        limit, since_ms=given["since"], chosen=None if any_is else chosen
    )
    return {"entries": list(reversed(entries))}


BROKER: Final = (
    Verb("broker show", _show),
    Verb(
        "broker connections",
        _connections,
        (VerbField("page", "number", 1), VerbField("rows", "number", PAGE_ROWS)),
    ),
    Verb(
        "config show",
        _config,
        (
            VerbField("search", default=""),
            VerbField("given", "flag", default=False),
            VerbField("differing", "flag", default=False),
        ),
    ),
    Verb(
        "audit list",
        _audit,
        (
            VerbField("since", "time", 0),
            VerbField("by", default=""),
            VerbField("action", default=""),
            VerbField("outcome", default="", choices=("done", "failed", "refused", "left out")),
            VerbField("limit", "number", ENTRIES_MAX),
        ),
    ),
)
