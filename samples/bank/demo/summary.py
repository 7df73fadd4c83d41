"""What the demo says at its end: a table for a person, and one line of JSON for a machine."""

import json
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

__all__ = ["Outcome", "show"]

# More differences than these do not help; their number is in the table.
DIFFERENCES_SHOWN_MAX = 10


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the demo has found out so far.

    Attributes:
        accounts: accounts of the data set.
        commands: commands sent, without those that process managers send.
        events: events in the store at the end.
        new_events: those that were not there before this run.
        transfers: how many transfers ended in which way.
        live: a sentence per difference between source data and live read models.
        spark: a sentence per difference that the rebuild brought to light; None: it did not run.
        restarts: kills of the service, each followed by a restart.
        sending_seconds: from the first command to the last result.
        rebuild_seconds: Spark's part.
        seconds: the whole demo.
    """

    accounts: int = 0
    commands: int = 0
    events: int = 0
    new_events: int = 0
    transfers: dict[str, int] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)
    spark: list[str] | None = None
    restarts: int = 0
    sending_seconds: float = 0.0
    rebuild_seconds: float = 0.0
    seconds: float = 0.0

    def to_json(self) -> str:
        """The last line of the demo."""
        return json.dumps(
            {
                "accounts": self.accounts,
                "commands": self.commands,
                "events": self.events,
                "new_events": self.new_events,
                "mismatches_live": len(self.live),
                "mismatches_spark": None if self.spark is None else len(self.spark),
                "restarts": self.restarts,
                "seconds": round(self.seconds, 1),
            }
        )


def show(outcome: Outcome, console: Console) -> None:
    """Prints the summary, differences first."""
    for sentence in [*outcome.live, *(outcome.spark or [])][:DIFFERENCES_SHOWN_MAX]:
        console.print(f"[red]differs[/]  {sentence}", soft_wrap=True)
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in _lines(outcome):
        table.add_row(name, value)
    console.print()
    console.print(table)
    console.print()


def _lines(outcome: Outcome) -> list[tuple[str, str]]:
    rate = outcome.commands / outcome.sending_seconds if outcome.sending_seconds else 0
    sent = f"{outcome.commands:,} commands for {outcome.accounts:,} accounts"
    took = f"{outcome.sending_seconds:.1f} s"
    lines = [
        ("sent", f"{sent} in {took}: {rate:,.0f} a second"),
        ("survived", f"{outcome.restarts} kill -9 of the command service meanwhile"),
        ("stored", f"{outcome.events:,} events, {_new(outcome)}"),
    ]
    if outcome.transfers:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(outcome.transfers.items()))
        lines.append(("transfers", f"{ends}; no cent made or lost" if not outcome.live else ends))
    lines.append(("live = source data", _verdict(outcome.live)))
    if outcome.spark is None:
        lines.append(("Spark = live", "[yellow]not run: it or Java is missing[/]"))
    else:
        lines.append(
            ("Spark = live", f"{_verdict(outcome.spark)} ({outcome.rebuild_seconds:.1f} s)")
        )
    return lines


def _new(outcome: Outcome) -> str:
    if outcome.new_events:
        return f"{outcome.new_events:,} of them new"
    return "none of them new: every command was known already, so nothing changed"


def _verdict(differences: list[str]) -> str:
    if not differences:
        return "[green]every row is the same[/]"
    return f"[red]{len(differences):,} differences[/]"
