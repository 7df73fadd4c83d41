"""Pages of a catalogue: texts are escaped, and nothing else is needed to read them."""

import re
from html.parser import HTMLParser

from headrace import App
from headrace.catalogue.pages import html_page, markdown_page, sections


def test_a_markdown_page_keeps_its_tables_whole(shop: App) -> None:
    page = markdown_page(shop.definition)
    assert page.startswith("# shop\n\n## Commands\n\n| Command | Meaning |")
    assert "Sells pieces, if there are \\| enough." in page
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.links += [name for name, _ in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_an_html_page_is_whole_escaped_and_needs_no_network(shop: App) -> None:
    page, reader = html_page(shop.definition), _Reader()
    reader.feed(page)
    assert reader.open == []
    assert "Pieces <left> the shop." in reader.texts
    assert reader.links == []
    assert "http" not in page
    assert "url(" not in page


def test_every_part_has_its_line(shop: App) -> None:
    found = {each.title: [tuple(row) for row in each.rows] for each in sections(shop.definition)}
    assert found == {
        "Commands": [
            ("Recount v2", "", "product: str (id)", "Count", "internal"),
            (
                "Sell v1",
                "Sells pieces, if there are | enough.",
                "product: str (id), pieces: int?, tags: list[str] or none?",
                "make_app.<locals>.sell",
                "public",
            ),
        ],
        "Events": [
            ("Counted v1", "", "", "Count", "event handlers mail"),
            (
                "Sold v1",
                "Pieces <left> the shop.",
                "pieces: int",
                "Product",
                "projection rows, event handlers mail, process manager ordering",
            ),
        ],
        "Application messages": [("Told v1", "", "text: str", "make_app.<locals>.tell")],
        "Projections": [
            (
                "rows",
                "What is left of each product.",
                "product: text, left: integer or none",
                "product",
                "Sold",
            )
        ],
        "Process managers": [("ordering", "none", "Sold", "")],
        "Periodic commands": [("nightly", "0 3 * * *", "latest")],
        "Topics": [
            ("shop.commands", "commands, as JSON; the fields are in `data`"),
            ("shop.commands.slow", "commands, as JSON; the fields are in `data`"),
            (
                "shop.events",
                "what a command did, as JSON; each event is in `events`, its fields in `data`",
            ),
            ("shop.messages", "application messages, as JSON; the fields are in `data`"),
        ],
    }


def test_tables_without_rows_are_left_out() -> None:
    assert [each.title for each in sections(App("empty").definition)] == ["Topics"]
