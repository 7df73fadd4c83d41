"""
HTML from templates: everything that is put in is escaped, and no page loads anything from elsewhere.

Used by the pages; uses Jinja2 and the templates of this package.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from headrace.console.picture import picture_of, took_words
from headrace.console.words import said
from headrace.figures.records import id_of, word
from headrace.figures.topics import frozen_queues, frozen_sides
from headrace.figures.words import age, per_second, size, when

__all__ = ["BODY_SHOWN_MAX", "page", "pretty", "pretty_value"]

# Characters of a body on the page of one message: with them and the rest it stays below 150 KB.
BODY_SHOWN_MAX: Final = 20_000
# Characters of a value in a row of a table.
_LINE_MAX: Final = 500
_HEX_COLUMNS: Final = 16
_FOLDER: Final = Path(__file__).parent / "templates"


def page(
    name: str, context: Mapping[str, Any], *, status: int = 200, language: str = "en"
) -> HTMLResponse:
    """Returns a page.

    Args:
        name: of its template.
        context: what it shows.
        status: of HTTP.
        language: `en` or `zh`.
    """

    def translated(text: str, **values: object) -> str:
        return said(text, language, **values)

    template = _ENVIRONMENT.get_template(name)
    return HTMLResponse(template.render(context, t=translated, language=language), status)


def pretty(text: str | None, raw: bytes) -> str:
    """Writes a body for people: JSON indented, other text as it is, the rest in hexadecimal.

    Args:
        text: the body as text; None: it is none.
        raw: the body.
    """
    if text is not None and all(one.isprintable() or one in "\n\t\r" for one in text):
        try:
            return _cut(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
        except (ValueError, RecursionError):
            return _cut(text)
    # A row of hexadecimal is four times as long as the bytes.
    kept = raw[: BODY_SHOWN_MAX // 4]
    rows = [kept[at : at + _HEX_COLUMNS] for at in range(0, len(kept), _HEX_COLUMNS)]
    told = [
        f"{n * _HEX_COLUMNS:06x}  {row.hex(' '):<47}  {_plain(row)}" for n, row in enumerate(rows)
    ]
    return "\n".join([*told, *(["…"] if len(raw) > len(kept) else [])])


def pretty_value(value: object) -> str:
    """Writes JSON values for people, indented; what does not print is escaped.

    Args:
        value: of objects, lists, texts and numbers.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not all(one.isprintable() or one == "\n" for one in text):
        text = json.dumps(value, indent=2)
    return _cut(text)


def _line(value: object) -> str:
    """Writes JSON values in a row of a table."""
    text = json.dumps(value, ensure_ascii=False)
    text = text if text.isprintable() else json.dumps(value)
    return text if len(text) <= _LINE_MAX else f"{text[:_LINE_MAX]}…"


def _moment(text: str) -> str:
    """Writes a moment in ISO 8601 for people; empty for none."""
    return text[:19].replace("T", " ")


def _plain(row: bytes) -> str:
    return "".join(chr(one) if 32 <= one < 127 else "." for one in row)


def _cut(text: str) -> str:
    return text if len(text) <= BODY_SHOWN_MAX else f"{text[:BODY_SHOWN_MAX]}\n…"


def _url(path: str, **query: object) -> str:
    kept = {name: each for name, each in query.items() if each not in {"", None, False}}
    return f"{path}?{urlencode(kept)}" if kept else path


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        url=_url,
        age=age,
        frozen_queues=frozen_queues,
        frozen_sides=frozen_sides,
        id_of=id_of,
        picture=picture_of,
    )
    environment.filters.update(
        line=_line,
        moment=_moment,
        pretty=pretty_value,
        when=when,
        size=size,
        took=took_words,
        word=word,
        number=lambda value: f"{value:,}",
        rate=per_second,
    )
    return environment


_ENVIRONMENT: Final = _environment()
