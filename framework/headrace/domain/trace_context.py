"""
Where a trace is carried along: two of the items that go with a command and its events.

Used by tracing, which puts spans there, and by messages, which show them in their headers, as W3C
Trace Context says. It knows no tracing library.
"""

from collections.abc import Mapping

__all__ = ["TRACE_HEADERS", "trace_headers"]

TRACE_HEADERS = ("traceparent", "tracestate")


def trace_headers(items: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message that belongs to the trace that its items name, if they name one."""
    return {name: items[name] for name in TRACE_HEADERS if name in items}
