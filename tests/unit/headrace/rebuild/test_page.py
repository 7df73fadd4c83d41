"""A page shows reports with plots, in one file that needs nothing else."""

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

from headrace.rebuild.page import to_page
from headrace.rebuild.report import RebuildReport

REPORT = RebuildReport(
    projection="accounts",
    generation=2,
    table="accounts__2",
    start="zero",
    start_offsets={"l/0": 10, "l/1": 0},
    end_offsets={"l/0": 40, "l/1": 10},
    queues={
        "l/0": {"messages": 30, "bytes": 6_000, "read_ms": 250, "work_ms": 750},
        "l/1": {"messages": 10, "bytes": 2_000, "read_ms": 100, "work_ms": 400},
    },
    events=45,
    rows=7,
    compared=7,
    mismatches=1,
    source="store",
    columns={"balance": 1},
    samples={"balance": (("<c&d>", 3, 4),)},
    behind=12,
    ahead=13,
    differences=(("<a&b>", {"balance": 1}, None),),
    reason="1 of 7 rows differ",
    seconds={"begin": 0.5, "fold": 1.5, "total": 2.0},
    events_per_second=30.0,
)


class Page(HTMLParser):
    """What a page holds: its text, and all tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.tags = "", list[tuple[str, dict[str, str | None]]]()
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def plots(page: str) -> dict[str, ET.Element]:
    """The drawings by their titles; each is XML of its own."""
    pieces = (piece.partition("</svg>")[0] for piece in page.split("<svg")[1:])
    drawings = [ET.fromstring(f"<svg{piece}</svg>") for piece in pieces]
    return {str(drawing.get("aria-label")): drawing for drawing in drawings}


def widths(plot: ET.Element) -> list[float]:
    return [float(str(bar.get("width"))) for bar in plot.findall("rect")]


def test_every_figure_of_a_report_is_there() -> None:
    page = Page(to_page([REPORT]))
    for figure in ("45", "7 rows, of which 1 differ", "8,000", "30", "2.00", "accounts", "zero"):
        assert figure in page.text, figure
    assert "not switched: 1 of 7 rows differ" in page.text
    assert "<a&b>" in page.text
    assert "\n".join(["key", "live", "rebuilt", "<c&d>", "3", "4"]) in page.text
    told = page.text.split("\n")
    for name, figure in (
        ("folded", "the event store"),
        ("aggregates that live lacks events of", "12"),
        ("aggregates that the store lacks events of", "13"),
        ("balance", "1"),
    ):
        assert figure in told[told.index(name) : told.index(name) + 3], name
    assert json.loads(page.text[page.text.index('{"projection"') :].splitlines()[0])["events"] == 45


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    drawn = plots(to_page([REPORT]))
    begin, fold = widths(drawn["Seconds by phase"])
    assert fold == 3 * begin > 0
    by_queue = drawn["Messages by queue; the largest has 1.50 times the mean"]
    first, second = widths(by_queue)
    assert first == 3 * second
    read, work, _, _, *legend = widths(drawn["Seconds by queue, in its own process"])
    assert (work, len(legend)) == (3 * read, 2)


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    text = to_page([REPORT])
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    assert not [attributes for _, attributes in page.tags if {"src", "href"} & set(attributes)]
    assert "url(" not in text
    assert "http" not in text


def test_a_report_with_little_in_it_and_several_reports_are_pages_too() -> None:
    bare = RebuildReport(
        projection="empty", generation=1, table="empty__1", start="zero", switched=True
    )
    assert plots(to_page([bare])) == {}
    both = Page(to_page([bare, REPORT]))
    assert [tag for tag, _ in both.tags].count("h2") == 2
    assert "table empty__1 is live" in both.text


def test_queues_without_a_message_are_drawn() -> None:
    idle = RebuildReport(
        projection="p", generation=1, table="p__1", start="zero",
        start_offsets={"l/0": 5}, end_offsets={"l/0": 5}, seconds={"fold": 0.0},
    )  # fmt: skip
    assert [widths(plot) for plot in plots(to_page([idle])).values()] == [[0.0], [0.0]]
