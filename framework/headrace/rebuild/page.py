"""
Reports of rebuilds as a page for a person: what was done, how long it took, and where.

One file without scripts, fonts or pictures from anywhere: plots are SVG in the page. Turns
`RebuildReport`s into a page; the caller writes the file. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from headrace.rebuild.report import RebuildReport

__all__ = ["to_page"]

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 56em; padding: 0 1em }
h2 { border-top: 1px solid #ccc; padding-top: 1em } h3 { font-size: 1em; margin: 1.5em 0 .3em }
table { border-collapse: collapse } td, th { padding: .1em 1em .1em 0; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums } .bad { color: #b00020 }
svg text { font: 12px system-ui, sans-serif } pre { overflow-x: auto; background: #f4f4f4; padding: 1em }
"""
# A line of a plot, the room for its label and for its bar, in pixels.
_LINE: Final = 20
_LABEL: Final = 200
_BAR: Final = 420
_COLOURS: Final = ("#3b6ea5", "#d98032")


def to_page(reports: Sequence[RebuildReport]) -> str:
    """Returns a whole HTML document about rebuilds, with their JSON at the end of each."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Rebuilds</title>',
        f"<style>{_STYLE}</style></head><body><h1>Rebuilds</h1>",
    ]
    for report in reports:
        parts += _section(report)
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def _section(report: RebuildReport) -> Iterator[str]:
    yield f"<h2>{escape(report.projection)}</h2>"
    wrong = report.mismatches or not report.switched
    became = f"table {report.table} is live" if report.switched else "not switched"
    said = f"{became}: {report.reason}" if report.reason else became
    yield f"<p{' class=bad' if wrong else ''}>{escape(said)}</p>"
    yield _table(_facts(report))
    phases = {name: (taken,) for name, taken in report.seconds.items() if name != "total"}
    if phases:
        yield _plot("Seconds by phase", ("seconds",), phases, "{:,.2f}")
    yield from _queues(report)
    if report.columns:
        yield "<h3>Rows that differ, by column</h3>"
        yield _table({name: f"{count:,}" for name, count in sorted(report.columns.items())})
    for name, samples in sorted(report.samples.items()):
        yield f"<h3>{escape(name)}: the first that differ</h3>"
        yield _grid(("key", "live", "rebuilt"), samples)
    if report.differences:
        yield "<h3>The first rows that differ</h3>"
        rows = {key: f"live {live}, rebuilt {rebuilt}" for key, live, rebuilt in report.differences}
        yield _table(rows)
    yield f"<details><summary>JSON</summary><pre>{escape(report.to_json())}</pre></details>"


def _facts(report: RebuildReport) -> dict[str, str]:
    compared = "nothing"
    if report.compared is not None:
        compared = f"{report.compared:,} rows, of which {report.mismatches:,} differ"
    facts = {
        "folded": f"the event {report.source}",
        "begun from": report.start,
        "events": f"{report.events:,}",
        "rows": f"{report.rows:,}",
        "events per second of folding": f"{report.events_per_second:,.0f}",
        "seconds": f"{report.seconds.get('total', 0):,.2f}",
        "messages caught up": f"{report.caught_up:,}",
        "compared": compared,
        "messages from exported files": f"{report.archived:,}",
        "duplicates, gaps, filled": f"{report.duplicates:,}, {report.gaps:,}, {report.filled:,}",
    }
    if report.tasks:
        facts["tasks that have read"] = f"{report.tasks:,}"
    if report.reused:
        facts["tasks of a killed rebuild"] = f"{report.reused:,}"
    if report.foreign:
        facts["foreign messages, passed over"] = f"{report.foreign:,}"
    if report.keys is not None:
        facts["keys refolded"] = f"{report.keys:,}"
    if report.mended is not None:
        facts["refolded rows that differed"] = f"{report.mended:,}"
    if report.behind:
        facts["aggregates that live lacks events of"] = f"{report.behind:,}"
    if report.ahead:
        facts["aggregates that the store lacks events of"] = f"{report.ahead:,}"
    if report.bytes_read is not None:
        facts["bytes of messages"] = f"{report.bytes_read:,}"
    return facts


def _queues(report: RebuildReport) -> Iterator[str]:
    if not report.messages:
        return
    yield _plot(
        f"Messages by queue; the largest has {report.skew:.2f} times the mean",
        ("messages",),
        {name: (count,) for name, count in sorted(report.messages.items())},
        "{:,.0f}",
    )
    measured = {name: each for name, each in sorted(report.queues.items()) if "read_ms" in each}
    if measured:
        yield _plot(
            "Bytes by queue",
            ("bytes",),
            {name: (each["bytes"],) for name, each in measured.items()},
            "{:,.0f}",
        )
        yield _plot(
            "Seconds by queue, in its own process",
            ("waiting for messages", "decoding and folding"),
            {
                name: (each["read_ms"] / 1_000, each["work_ms"] / 1_000)
                for name, each in measured.items()
            },
            "{:,.2f}",
        )


def _table(rows: Mapping[str, str]) -> str:
    lines = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows.items())
    return f"<table>{''.join(lines)}</table>"


def _grid(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    for row in rows:
        cells = ("" if value is None else str(value) for value in row)
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _plot(title: str, parts: Sequence[str], bars: Mapping[str, Sequence[float]], form: str) -> str:
    """Returns horizontal bars, one per name, each made of a length per part."""
    longest = max((sum(lengths) for lengths in bars.values()), default=0) or 1
    height = _LINE * (len(bars) + (len(parts) > 1))
    shapes: list[str] = []
    for line, (name, lengths) in enumerate(bars.items()):
        top = line * _LINE
        shapes.append(f'<text x="0" y="{top + 14}">{escape(name)}</text>')
        left = float(_LABEL)
        for colour, length in zip(_COLOURS, lengths, strict=False):
            width = length / longest * _BAR
            shapes.append(_box(left, top + 3, width, colour))
            left += width
        told = " + ".join(form.format(length) for length in lengths)
        shapes.append(f'<text x="{left + 6:.1f}" y="{top + 14}">{told}</text>')
    if len(parts) > 1:
        for place, (colour, part) in enumerate(zip(_COLOURS, parts, strict=False)):
            left, top = _LABEL + place * _LABEL, height - _LINE
            shapes.append(_box(left, top + 3, 12, colour))
            shapes.append(f'<text x="{left + 18}" y="{top + 14}">{escape(part)}</text>')
    width = _LABEL + _BAR + 160
    return (
        f'<h3>{escape(title)}</h3><svg role="img" aria-label="{escape(title)}" width="{width}"'
        f' height="{height}" viewBox="0 0 {width} {height}">{"".join(shapes)}</svg>'
    )


def _box(left: float, top: float, width: float, colour: str) -> str:
    return f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="14" fill="{colour}"/>'
