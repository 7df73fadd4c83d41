"""
What `headrace doctor` says of an application: its databases, what it has parked, where its projections stand.

Used by the command, with what `application_look` found. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from headrace.cli.doctor.findings import Finding, failed, of_sentence, ok, warning

__all__ = ["DatabaseFacts", "ParkedFacts", "databases", "parked", "projections"]

_MIB: Final = 1 << 20


class DatabaseFacts(NamedTuple):
    """A database.

    Attributes:
        what: it holds, such as "event store".
        trouble: why it cannot be used, as a sentence; empty: it can.
        size: what it takes, in bytes; -1: it is not known.
        in_memory: nothing of it is on a disk.
    """

    what: str
    trouble: str = ""
    size: int = -1
    in_memory: bool = False


class ParkedFacts(NamedTuple):
    """What one processor has parked, and for how long the oldest of it waits, in milliseconds."""

    processor: str
    letters: int
    oldest_ms: int


def databases(found: Iterable[DatabaseFacts]) -> Iterator[Finding]:
    """Says of each database whether it answers and has the schema of this version."""
    for each in found:
        if each.in_memory:
            yield warning(
                each.what, "it is in the memory of a process, and ends with it",
                "name a database: sqlite:///FILE or postgresql://USER@HOST/DATABASE",
            )  # fmt: skip
        elif each.trouble:
            yield of_sentence("failed", each.what, each.trouble, "check its URL, and that it runs")
        else:
            size = "" if each.size < 0 else f", {each.size / _MIB:,.1f} MiB"
            yield ok(each.what, f"it answers, and its schema is this version's{size}")


def parked(found: Sequence[ParkedFacts], *, count_min: int, ms_max: int) -> Iterator[Finding]:
    """Says what is parked: as the alarms of a running application do.

    Args:
        found: by processor.
        count_min: as many are a warning.
        ms_max: one that waits for longer is one, too.
    """
    for each in found:
        if each.letters >= count_min or each.oldest_ms > ms_max:
            yield warning(
                f"parked by {each.processor}", f"{each.letters:,}, the oldest for {each.oldest_ms / 1_000:,.0f} s",
                f"`headrace parked show --processor {each.processor}` says why; then retry or skip",
            )  # fmt: skip
    if not sum(each.letters for each in found):
        yield ok("parked", "nothing is parked")


def projections(
    found: Iterable[Any], without_tables: Iterable[str], *, messages_max: int, ms_max: int
) -> Iterator[Finding]:
    """Says where each projection stands in the event topic.

    Args:
        found: their lags, as `headrace projection status` has them.
        without_tables: names of projections that have none yet.
        messages_max: one that is further behind is a warning.
        ms_max: one whose oldest event waits for longer is one.
    """
    for name in without_tables:
        yield warning(
            f"projection {name}", "it has no tables yet", "start the application, which makes them"
        )
    for lag in found:
        yield _projection(lag, messages_max, ms_max)


def _projection(lag: Any, messages_max: int, ms_max: int) -> Finding:
    name = f"projection {lag.projection}"
    if lag.elsewhere is not None:
        return failed(name, f"it {lag.elsewhere}", "see docs/recovery.md")
    if lag.obstacle is not None:
        return warning(
            name, f"it waits: {lag.obstacle}", "see docs/projections.md, when the fold changes"
        )
    if lag.paused_at is not None:
        advice = f"`headrace projection resume {lag.projection}` lets it go on"
        return warning(name, f"it is paused since {lag.paused_at:%Y-%m-%d %H:%M} UTC", advice)
    if lag.group_paused is not None:
        advice = f"`headrace group set {lag.group_paused} --consume on` lets it go on"
        return warning(name, f"an operator has paused its group {lag.group_paused}", advice)
    behind = f"{lag.messages:,} messages behind, the oldest for {lag.age_ms / 1_000:,.1f} s"
    if lag.messages > messages_max or lag.age_ms > ms_max:
        advice = "`headrace projection status` says where; check that the application runs"
        return warning(name, behind, advice)
    return ok(name, behind if lag.messages else "it has every event")
