"""
What `headrace doctor` says of a broker: its addresses, its clock, its groups, its topics.

Used by the command, with what `broker_look` found. Pure.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from headrace.cli.doctor.findings import Finding, failed, of_sentence, ok, warning
from headrace.figures.cluster import LOSS_MS, failover_loss

__all__ = [
    "CLOCK_MS",
    "BrokerFacts",
    "DeclaredTopic",
    "NameFacts",
    "PlaceFacts",
    "PlaceKind",
    "clock",
    "groups",
    "grows_per_day",
    "health",
    "names",
    "places",
    "service",
    "topics",
]

# Time servers keep machines within some ten milliseconds; from a second on, lags and due times are visibly wrong.
CLOCK_MS: Final = 1_000
# From a minute on, certificates and messages for later are wrong, too.
_CLOCK_FAILED_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
# A rate of growth over less time says nothing.
_GROWTH_MS_MIN: Final = 3_600_000
# Groups that are named one by one; of more there is one line.
_GROUPS_NAMED_MAX: Final = 20
_FOREVER: Final = "forever"

PlaceKind = Literal["leads", "replica", "login", "version", "tls", "silent"]


class PlaceFacts(NamedTuple):
    """What one address of a broker answered.

    Attributes:
        name: HOST:PORT.
        kind: "leads": it serves; "replica": another one of its group does; or what went wrong.
        sentence: of the error, where it does not serve.
        user: that was let in; empty: the address names none.
    """

    name: str
    kind: PlaceKind
    sentence: str = ""
    user: str = ""


class NameFacts(NamedTuple):
    """What one name server answered.

    Attributes:
        name: HOST:PORT.
        brokers: how many it knows of those that are looked for.
        sentence: why it knows none.
    """

    name: str
    brokers: int
    sentence: str = ""


class BrokerFacts(NamedTuple):
    """What a broker told.

    Attributes:
        status: as `AdminClient.status`; None: it may not be read.
        ahead_ms: how far its clock is ahead of ours.
        unsure_ms: how far the truth may be from that.
        topics: all of them; None: they may not be read.
        forever: states of the queues of topics that are kept forever.
        groups: all of them.
        oldest_ms: how long the oldest message waits for a group, by its name, where some wait.
        letters: dead letters that were not sent again, by group.
        denied: sentences about what this user may not read.
    """

    status: Any = None
    ahead_ms: int = 0
    unsure_ms: int = 0
    topics: Sequence[Any] | None = None
    forever: Sequence[Any] = ()
    groups: Sequence[Any] = ()
    oldest_ms: Mapping[str, int] = {}
    letters: Mapping[str, int] = {}
    denied: Sequence[str] = ()


class DeclaredTopic(NamedTuple):
    """A topic as an application asks for it at its start."""

    name: str
    queues: int
    retention: str


_ADVICE: Final[Mapping[str, str]] = {
    "login": "set HEADRACE_USER and HEADRACE_PASSWORD_FILE; `headrace user list` lists users",
    "version": "update the older one of broker and client",
    "tls": "see docs/security.md",
    "silent": "check that it runs, and host, port and firewall",
}


def names(found: Sequence[NameFacts]) -> Iterator[Finding]:
    """Says of each name server what it knows; one that knows no broker is a warning where another one does."""
    known = any(each.brokers for each in found)
    for each in found:
        name = f"name server {each.name}"
        if each.brokers:
            yield ok(name, f"it knows {each.brokers:,} broker{'' if each.brokers == 1 else 's'}")
        else:
            advice = "check that it runs, and that brokers have it in --nameservers"
            yield of_sentence("warning" if known else "failed", name, each.sentence, advice)


def places(found: Sequence[PlaceFacts]) -> Iterator[Finding]:
    """Says of each address of a broker whether a broker serves there.

    An address that does not answer is a warning where another one serves: of a broker that moved, or of a group.
    """
    served = any(each.kind == "leads" for each in found)
    for each in found:
        name = f"broker {each.name}"
        if each.kind == "leads":
            yield ok(name, "it serves clients")
        elif each.kind == "replica":
            said = "a replica, which serves when its leader is lost"
            if served:
                yield ok(name, said)
            else:
                yield of_sentence("failed", name, each.sentence)
        else:
            harmless = served and each.kind == "silent"
            yield of_sentence(
                "warning" if harmless else "failed", name, each.sentence, _ADVICE[each.kind]
            )
    users = {each.user for each in found if each.kind == "leads" and each.user}
    yield from (ok("login", f"{user} is let in") for user in sorted(users))


def clock(facts: BrokerFacts, most_ms: int = CLOCK_MS) -> Iterator[Finding]:
    """Says how far the broker's clock is from ours.

    Args:
        facts: what the broker told.
        most_ms: from this difference on there is a warning, in milliseconds.
    """
    if facts.status is None:
        return
    name = "clock of the broker"
    away = max(0, abs(facts.ahead_ms) - facts.unsure_ms)
    way = "ahead of" if facts.ahead_ms > 0 else "behind"
    said = f"{abs(facts.ahead_ms) / 1_000:,.3f} s {way} this machine, give or take {facts.unsure_ms} ms"
    advice = "let a time server (NTP) set the clocks of both machines"
    if away >= max(most_ms, _CLOCK_FAILED_MS):
        yield failed(name, said, advice)
    elif away >= most_ms:
        yield warning(name, said, advice)
    else:
        yield ok(name, said)
    if facts.status.clock_alarm:
        yield of_sentence("warning", name, facts.status.clock_alarm, advice)


def grows_per_day(facts: BrokerFacts) -> float | None:
    """Returns by how many bytes a day the messages that are kept forever grow, on average; None: not known.

    Other messages are deleted by age, so their room stays the same after a while.
    """
    status = facts.status
    since = [one.first_stored_at_ms for one in facts.forever if one.first_stored_at_ms]
    if status is None or facts.topics is None:
        return None
    if not since:
        return 0.0
    age_ms = status.now_ms - min(since)
    size = sum(one.end - one.first for one in status.logs if one.log == _FOREVER)
    return size * _DAY_MS / age_ms if age_ms >= _GROWTH_MS_MIN else None


def health(facts: BrokerFacts) -> Iterator[Finding]:
    """Says what a broker tells of itself: whether it takes messages, what is damaged, what waits."""
    for sentence in facts.denied:
        yield of_sentence(
            "warning", "permissions", sentence, "allow it with `headrace acl allow`, to look at all"
        )
    status = facts.status
    if status is None:
        return
    if status.refuses:
        yield of_sentence("failed", "messages", status.refuses, "see docs/operations.md")
    elif status.shortage:
        yield of_sentence(
            "failed",
            "messages",
            f"nothing is acknowledged: {status.shortage}",
            "see docs/cluster.md",
        )
    else:
        yield ok("messages", "the broker takes them")
    if status.damaged:
        yield warning(
            "damage", f"{status.damaged:,} places of the logs were left out since the start",
            "`headrace broker show` names them, and docs/failures.md says what to do",
        )  # fmt: skip
    if status.unrepaired:
        yield warning(
            "damage", f"no other broker has sound bytes for {status.unrepaired:,} damaged places",
            "docs/alarms.md says what to do, at HeadraceDamageNotRepaired",
        )  # fmt: skip
    for leads in status.leads:
        yield from _leads(leads)
    if status.compaction.trouble:
        yield of_sentence(
            "warning", "compaction", status.compaction.trouble, "see the broker's log"
        )
    for archive in status.archive:
        said = archive.alarm or archive.failure
        if said:
            yield of_sentence(
                "warning", "archive", said, "start its database, and see the broker's log"
            )
        else:
            yield ok("archive", f"{archive.waiting_bytes:,} bytes wait for it")


def _leads(leads: Any) -> Iterator[Finding]:
    """Says what a failover of a group of brokers would lose, and what one has."""
    if leads.loss_ms > LOSS_MS:
        yield warning(
            "failover", f"it may lose {failover_loss(leads)}",
            "docs/alarms.md says what to do, at HeadraceFailoverMayLose",
        )  # fmt: skip
    else:
        yield ok("failover", f"it may lose {failover_loss(leads)}")
    if leads.lost:
        yield warning(
            "lost messages",
            f"this broker cut {leads.lost:,} messages from its log, because another one led without them",
            "`headrace store lost DIR` shows them; send again what you need, and move the files away",
        )  # fmt: skip


def groups(facts: BrokerFacts, *, messages_max: int, ms_max: int) -> Iterator[Finding]:
    """Says which consumer groups are behind, paused, without members, or near a limit.

    Args:
        facts: what the broker told.
        messages_max: a group that is further behind is a warning.
        ms_max: a group whose oldest message waits for longer is one.
    """
    found = [each for one in facts.groups for each in _group(one, facts, messages_max, ms_max)]
    yield from found[:_GROUPS_NAMED_MAX]
    if len(found) > _GROUPS_NAMED_MAX:
        more = f"{len(found) - _GROUPS_NAMED_MAX:,} more findings of this kind"
        yield warning("groups", more, "`headrace group list` lists all groups")
    if facts.groups and not found:
        most = max((one.lag for one in facts.groups if one.commits), default=0)
        yield ok("groups", f"{len(facts.groups):,}, at most {most:,} messages behind")
    for name, count in sorted(facts.letters.items()):
        yield warning(
            f"group {name}", f"{count:,} dead letters were not sent again",
            f"`headrace message dead {shlex.quote(name)}` shows why; then `headrace message resend`, or purge them",
        )  # fmt: skip


def _group(one: Any, facts: BrokerFacts, messages_max: int, ms_max: int) -> Iterator[Finding]:
    name, quoted = f"group {one.group}", shlex.quote(one.group)
    if not one.consume:
        yield warning(
            name,
            "an operator has paused it",
            f"`headrace group set {quoted} --consume on` lets it go on",
        )
    elif one.commits and one.lag and not one.members:
        yield warning(
            name, f"it has no members, and {one.lag:,} messages wait",
            f"start its consumers; `headrace group delete {quoted}` if there are none any more",
        )  # fmt: skip
    elif one.commits:
        age_ms = facts.oldest_ms.get(one.group, 0)
        if one.lag > messages_max or age_ms > ms_max:
            yield warning(
                name, f"{one.lag:,} messages behind, the oldest for {age_ms / 1_000:,.1f} s",
                f"`headrace group show {quoted}` says where; add members, at most one per queue",
            )  # fmt: skip
    if facts.status is not None and one.group in facts.status.alarms:
        yield warning(
            name, "it is near the limit of how far behind it may be, or above",
            "`headrace group limits` shows it; add members, or raise the limit",
        )  # fmt: skip


def service(facts: BrokerFacts, app: str, group: str) -> Iterator[Finding]:
    """Says whether a process of an application handles its commands.

    Args:
        facts: what the broker told.
        app: the application's name.
        group: the consumer group of its commands.
    """
    if facts.topics is None:
        return
    members = sum(one.members for one in facts.groups if one.group == group)
    if members:
        yield ok("command service", f"{members:,} processes of {app} handle commands")
    else:
        yield warning(
            "command service",
            f"no process of {app} handles commands",
            "start it with `headrace run`",
        )


def topics(facts: BrokerFacts, app: str, declared: Iterable[DeclaredTopic]) -> Iterator[Finding]:
    """Compares the topics that an application declares with those of the broker.

    Args:
        facts: what the broker told.
        app: the application's name.
        declared: its topics, as it asks for them at its start.
    """
    if facts.topics is None:
        return
    there = {one.topic: one for one in facts.topics}
    wanted = list(declared)
    for topic in wanted:
        yield _topic(topic, there.get(topic.name))
    known = {topic.name for topic in wanted}
    for name in sorted(there):
        if name.startswith(f"{app}.commands.") and name not in known:
            yield warning(
                f"topic {name}", f"no command of {app} has this topic",
                "handle its messages with the version that had it; then freeze and delete it",
            )  # fmt: skip


def _topic(topic: DeclaredTopic, there: Any) -> Finding:
    name = f"topic {topic.name}"
    if there is None:
        return warning(
            name, "the broker has no such topic", "start the application, which makes it"
        )
    if there.retention != topic.retention:
        return failed(
            name, f"it is kept {there.retention!r}, and the application needs {topic.retention!r}",
            "give the application another name, or move the messages and make the topic again",
        )  # fmt: skip
    if there.queues < topic.queues:
        return warning(
            name, f"it has {there.queues} queues, and the settings say {topic.queues}",
            "it gets them at the next start, and keys move; or set the number that it has",
        )  # fmt: skip
    frozen = sorted({*there.unwritable, *there.unreadable})
    if frozen:
        return warning(
            name, f"queues are frozen: {', '.join(map(str, frozen))}", f"`headrace topic thaw {topic.name}` opens them"
        )  # fmt: skip
    return ok(name, f"{there.queues} queues, kept {there.retention!r}")
