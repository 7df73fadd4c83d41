"""
A catalogue as a page, in Markdown or in HTML that needs no other file and no network.

Used by `headrace catalog`; reads the definition of an application. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from headrace.catalogue.topics import topics_of
from headrace.domain.message import Command
from headrace.processes.process import Process
from headrace.registration.definition import Definition

__all__ = ["Section", "html_page", "markdown_page", "sections"]

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{border:1px solid #8888;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    ":root{color-scheme:light dark}"
)


@dataclass(frozen=True, slots=True)
class Section:
    """One table.

    Attributes:
        title: above it.
        columns: the names of its columns.
        rows: their texts, in the order of the columns.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def markdown_page(definition: Definition) -> str:
    """Returns the catalogue in Markdown."""
    parts = [f"# {definition.name}", *map(_markdown, sections(definition))]
    return "\n\n".join(parts) + "\n"


def html_page(definition: Definition) -> str:
    """Returns the catalogue as one HTML page."""
    body = "\n".join(map(_html, sections(definition)))
    name = escape(definition.name)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{name}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n{body}\n</body>\n</html>\n"
    )


def sections(definition: Definition) -> list[Section]:
    """Returns the tables that have rows."""
    found = [
        _commands(definition),
        _events(definition),
        _messages(definition),
        _projections(definition),
        _managers(definition),
        Section(
            "Periodic commands",
            ("Name", "Time table", "Missed"),
            [(each.name, each.schedule.expression, each.missed) for each in definition.periodic],
        ),
        Section(
            "Topics",
            ("Topic", "Carries"),
            [(each.address, each.carries) for each in topics_of(definition)],
        ),
    ]
    return [each for each in found if each.rows]


def _commands(definition: Definition) -> Section:
    rows = [
        (
            _versioned(one),
            _doc(one),
            _fields(one, one.aggregate_id_field),
            handler,
            "internal" if one.message_internal else "public",
        )
        for one, handler in _sorted(definition.commands.items())
    ]
    return Section("Commands", ("Command", "Meaning", "Fields", "Handled by", "Reach"), rows)


def _events(definition: Definition) -> Section:
    rows = [
        (
            _versioned(one),
            _doc(one),
            _fields(one),
            ", ".join(aggregates),
            ", ".join(definition.readers_of(one)),
        )
        for one, aggregates in _sorted(definition.events.items())
    ]
    return Section("Events", ("Event", "Meaning", "Fields", "Of", "Read by"), rows)


def _messages(definition: Definition) -> Section:
    rows = [
        (
            _versioned(one),
            _doc(one),
            _fields(one),
            ", ".join(getattr(each, "__qualname__", repr(each)) for each in handlers),
        )
        for one, handlers in _sorted(definition.messages.items())
    ]
    return Section("Application messages", ("Message", "Meaning", "Fields", "Handled by"), rows)


def _projections(definition: Definition) -> Section:
    rows = [
        (
            each.name,
            _doc(each.row),
            ", ".join(
                f"{field.name}: {field.kind.value}{' or none' if field.optional else ''}"
                for field in each.shape.fields
            ),
            each.key,
            ", ".join(sorted(one.message_name for one in each.event_types)),
        )
        for each in definition.projections
    ]
    return Section("Projections", ("Projection", "Meaning", "Columns", "Key", "Reads"), rows)


def _managers(definition: Definition) -> Section:
    rows = [
        (
            each.name,
            each.state.__name__ if isinstance(each, Process) else "none",
            ", ".join(sorted(one.message_name for one in each.event_types)),
            ", ".join(sorted(one.message_name for one in each.rejected_types)),
        )
        for each in definition.managers
    ]
    columns = ("Process manager", "State", "Reads", "Handles the rejection of")
    return Section("Process managers", columns, rows)


def _sorted(items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return sorted(items, key=lambda each: (each[0].message_name, each[0].message_version))


def _versioned(one: type[Any]) -> str:
    return f"{one.message_name} v{one.message_version}"


def _doc(one: type[Any]) -> str:
    # Not that of a base class: a message without one has nothing to say.
    return (one.__dict__.get("__doc__") or "").strip().partition("\n")[0]


def _fields(one: type[BaseModel], id_field: str = "") -> str:
    return ", ".join(
        f"{name}: {_type(info.annotation)}"
        + (" (id)" if name == id_field and issubclass(one, Command) else "")
        + ("" if info.is_required() else "?")
        for name, info in one.model_fields.items()
    )


def _type(annotation: Any) -> str:
    arguments = ", ".join(map(_type, get_args(annotation)))
    if get_origin(annotation) in {Union, UnionType}:
        return arguments.replace(", ", " or ").replace("NoneType", "none")
    if isinstance(annotation, type) and not arguments:
        return annotation.__name__
    origin = get_origin(annotation)
    if origin is None or not arguments:
        return str(annotation).removeprefix("typing.")
    return f"{getattr(origin, '__name__', origin)}[{arguments}]"


def _markdown(section: Section) -> str:
    lines = [section.columns, ["---"] * len(section.columns), *section.rows]
    table = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
    return f"## {section.title}\n\n{table}"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _html(section: Section) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in section.columns)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in section.rows
    )
    return (
        f"<h2>{escape(section.title)}</h2>\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        f"{rows}\n</tbody>\n</table>"
    )
