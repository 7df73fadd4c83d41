"""
What `headrace doctor` says of a group of brokers: who leads, which brokers are in sync, which are out.

Used by the command, with what `broker_look` found. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.cli.doctor.broker_rules import PlaceFacts
from headrace.cli.doctor.findings import Finding, failed, of_sentence, ok, warning
from headrace.figures.cluster import ack_shown

__all__ = ["ClusterFacts", "cluster"]


class ClusterFacts(NamedTuple):
    """A group of brokers, as its record and its members have it.

    Attributes:
        record: the record; None: it cannot be read.
        trouble: why, as a sentence.
        answers: what the members answered, by their names.
        named: the addresses that clients are given.
        min_in_sync: fewer brokers in sync acknowledge nothing, unless the leader acknowledges alone.
    """

    record: Any
    trouble: str = ""
    answers: Mapping[str, PlaceFacts] = {}
    named: frozenset[str] = frozenset()
    min_in_sync: int = 1


def cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """Says of a group of brokers whether it serves, and what it would survive."""
    if facts.record is None:
        yield of_sentence("failed", "record of the group", facts.trouble, "start its database")
        return
    members = sorted(one.name for one in facts.record.in_sync)
    yield ok(
        "record of the group", f"epoch {facts.record.epoch:,}, change {facts.record.version:,}"
    )
    if facts.record.unclean:
        yield warning(
            "lost messages", f"a broker was promoted with loss in epoch {facts.record.unclean:,}",
            "find out what is lost: `headrace store lost DIR` shows what brokers that came back had to cut. Rebuild Spark tables that"
            " had read it; then `headrace cluster settle`",
        )  # fmt: skip
    if facts.record.epoch == facts.record.lossy > facts.record.unclean:
        yield warning(
            "lost messages",
            f"the leader before epoch {facts.record.epoch:,} acknowledged alone, so this one may lack messages",
            "start the broker that led: its log says what it had to cut, and `headrace store lost DIR` shows it",
        )  # fmt: skip
    if facts.record.ack != "in_sync":
        yield ok("acknowledged by", ack_shown(facts.record))
    yield _leader(facts)
    yield _in_sync(members, facts.min_in_sync, facts.record.ack)
    for name in members:
        answer = facts.answers.get(name)
        if name != facts.record.leader and answer is not None and answer.kind != "replica":
            said = (
                "it is in sync and serves, though another one leads"
                if answer.kind == "leads"
                else answer.sentence
            )
            yield of_sentence("warning", f"replica {name}", said, "start it again")
    for name in sorted(facts.named - set(members)):
        yield warning(
            f"replica {name}", "it is out of the in-sync set, so it is not elected",
            "start it; it catches up and enters. Leave its address out if there is none any more",
        )  # fmt: skip
    for name in sorted(set(members) - facts.named):
        yield warning(
            f"replica {name}", "clients are not given its address, and would not find it as a leader",
            "name all brokers of the group to clients, HOST:PORT,HOST:PORT",
        )  # fmt: skip


def _leader(facts: ClusterFacts) -> Finding:
    leader = facts.record.leader
    answer = facts.answers.get(leader)
    if answer is None or answer.kind == "leads":
        return ok("leader", leader)
    advice = "a replica leads within seconds; if none does, start the brokers in sync"
    if answer.kind == "replica":
        return failed("leader", f"{leader} leads by the record, and does not serve yet", advice)
    return failed("leader", f"{leader}: {answer.sentence.partition(': check ')[0]}", advice)


def _in_sync(members: list[str], least: int, ack: str) -> Finding:
    said = " ".join(members)
    advice = "start the other brokers of the group; each catches up and enters"
    if len(members) < least and ack != "leader":
        return failed(
            "in sync", f"{said}: fewer than min_in_sync={least}, so nothing is acknowledged", advice
        )
    if len(members) == 1:
        return warning("in sync", f"{said} alone: what it acknowledges is on one machine", advice)
    return ok("in sync", said)
