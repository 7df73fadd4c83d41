"""Spans, and how they are carried."""

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from headrace.tracing.spans import LINKS_MAX, Spans, context_in, span_context_in

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_what_carries_no_valid_context_has_none() -> None:
    assert context_in({}) is None
    assert context_in({"traceparent": "nonsense"}) is None
    assert span_context_in({"tracestate": "x=1"}) is None


def test_a_span_goes_on_with_what_is_carried_and_is_carried_itself(
    spans: Spans, ended: Any
) -> None:
    carried = {"traceparent": PARENT, "tracestate": "vendor=1"}
    span = spans.start("work", SpanKind.CLIENT, {"a": 1}, parent=context_in(carried))
    with spans.current(span) as carrier:
        assert span_context_in(carrier) is not None
    assert carrier["traceparent"].split("-")[1] == PARENT.split("-")[1]
    assert carrier["tracestate"] == "vendor=1"
    (found,) = ended("work")
    assert found.attributes == {"messaging.system": "headrace", "a": 1}
    assert format(found.parent.span_id, "016x") == PARENT.split("-")[2]


def test_an_error_marks_a_span_and_an_expected_one_does_not(spans: Spans, ended: Any) -> None:
    for expected in ((), (ValueError,)):
        span = spans.start("work", SpanKind.CLIENT, {})
        with (
            pytest.raises(ValueError, match="no"),
            spans.current(span, expected=expected),
        ):
            raise ValueError("no")
    failed, answered = ended("work")
    assert failed.status.status_code is StatusCode.ERROR
    assert [event.name for event in failed.events] == ["exception"]
    assert answered.status.status_code is StatusCode.UNSET
    assert failed.attributes["error.type"] == answered.attributes["error.type"] == "ValueError"


def test_a_cancellation_only_ends_a_span(spans: Spans, ended: Any) -> None:
    with (
        pytest.raises(asyncio.CancelledError),
        spans.current(spans.start("work", SpanKind.CLIENT, {})),
    ):
        raise asyncio.CancelledError
    (found,) = ended("work")
    assert found.status.status_code is StatusCode.UNSET


def test_links_are_bounded(spans: Spans, ended: Any) -> None:
    linked = span_context_in({"traceparent": PARENT})
    assert linked is not None
    spans.start("work", SpanKind.CONSUMER, {}, links=[linked] * (LINKS_MAX + 9)).end()
    (found,) = ended("work")
    assert len(found.links) == LINKS_MAX
