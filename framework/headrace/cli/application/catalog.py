"""`headrace catalog`: says what an application consists of, as a page or an AsyncAPI document."""

import json
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["CatalogFormat", "catalog"]


class CatalogFormat(StrEnum):
    """The forms of a catalogue."""

    MARKDOWN = "markdown"
    HTML = "html"
    ASYNCAPI = "asyncapi"


def catalog(
    app_path: Annotated[
        str, typer.Argument(metavar="APP", help="Application as MODULE:ATTRIBUTE.")
    ],
    *,
    format_: Annotated[
        CatalogFormat, typer.Option("--format", help="A page, or an AsyncAPI 3 document as JSON.")
    ] = CatalogFormat.MARKDOWN,
) -> None:
    """Print the commands, events, projections, process managers and topics of an application."""
    from headrace.app import load_app
    from headrace.catalogue.asyncapi import asyncapi_document
    from headrace.catalogue.pages import html_page, markdown_page

    definition = load_app(app_path).definition
    match format_:
        case CatalogFormat.MARKDOWN:
            typer.echo(markdown_page(definition), nl=False)
        case CatalogFormat.HTML:
            typer.echo(html_page(definition), nl=False)
        case CatalogFormat.ASYNCAPI:
            typer.echo(json.dumps(asyncapi_document(definition), indent=2, ensure_ascii=False))
