"""Which items go into the headers of messages."""

from headrace.domain.trace_context import trace_headers


def test_only_what_carries_a_trace_becomes_a_header() -> None:
    assert trace_headers({"user": "ann"}) == {}
    items = {"user": "ann", "traceparent": "00-a-b-01", "tracestate": "x=1"}
    assert trace_headers(items) == {"traceparent": "00-a-b-01", "tracestate": "x=1"}
