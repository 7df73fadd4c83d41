"""
`GET /docs`: the OpenAPI document as a page for a browser.

The page has no script and loads nothing from another host. Pure.
"""

import json
from html import escape
from typing import Any, Final

__all__ = ["POLICY", "page"]

# The page loads nothing, runs nothing and cannot be framed.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace}pre{background:#f3f3f3;padding:.6rem;overflow:auto}"
    "section{border-top:1px solid #ddd}td{padding-right:1rem;vertical-align:top}"
)


def page(document: dict[str, Any]) -> str:
    """Returns the page of an OpenAPI document."""
    title = escape(document["info"]["title"])
    sections = [
        _section(document, method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>'
        f"{''.join(sections)}</body></html>"
    )


def _section(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for one in (_resolved(document, each) for each in operation.get("parameters", []))
    )
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = ""
    if "example" in content:
        body = f"<pre>{escape(json.dumps(content['example'], indent=2))}</pre>"
    answers = "".join(
        f"<tr><td>{escape(status)}</td>"
        f"<td>{escape(_resolved(document, answer)['description'])}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return (
        f"<section><h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
        f"<p>{escape(operation['summary'])}</p><table>{rows}</table>{body}"
        f"<table>{answers}</table></section>"
    )


def _resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    found: Any = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)
