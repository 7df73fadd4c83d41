"""
Spans as the messaging conventions of OpenTelemetry want them, and how they are carried.

Used by the traced parts; uses the OpenTelemetry API.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.domain.trace_context import TRACE_HEADERS
from headrace.subjects.hidden import hide_personal

__all__ = ["Spans", "context_in", "fail", "span_context_in"]

_SYSTEM = "headrace"
# Links from a batch's span to its messages: more are no help, and by default the SDK keeps no more.
LINKS_MAX = 128

_propagator = TraceContextTextMapPropagator()


def context_in(carrier: Mapping[str, str]) -> Context | None:
    """The context that items or headers carry, or None."""
    if TRACE_HEADERS[0] not in carrier:
        return None
    context = _propagator.extract(carrier)
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def span_context_in(carrier: Mapping[str, str]) -> trace.SpanContext | None:
    """The span that items or headers name, or None."""
    context = context_in(carrier)
    return None if context is None else trace.get_current_span(context).get_span_context()


def fail(span: Span, error: BaseException) -> None:
    """Marks a span as failed."""
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, repr(error))
    span.set_attribute("error.type", type(error).__qualname__)


class Spans:
    """Makes spans.

    Args:
        provider: of tracers; that of the process by default.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("headrace", tracer_provider=provider)

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        *,
        parent: Context | None = None,
        links: Sequence[trace.SpanContext] = (),
    ) -> Span:
        """Begins a span of the messaging system; the caller that begins it ends it.

        Without a parent it is the first of a new trace.
        """
        return self._tracer.start_span(
            name,
            context=Context() if parent is None else parent,
            kind=kind,
            attributes={"messaging.system": _SYSTEM, **attributes},
            links=[Link(context) for context in links[:LINKS_MAX]],
        )

    @contextmanager
    def current(
        self,
        span: Span,
        *,
        expected: tuple[type[Exception], ...] = (),
        of: Iterable[Any] = (),
    ) -> Iterator[dict[str, str]]:
        """Makes a span the current one of a block, and ends it there; yields what carries it.

        An error that is not `expected` marks it as failed, without personal values of the messages
        that it is `of`; a cancellation only ends it.
        """
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            carrier: dict[str, str] = {}
            _propagator.inject(carrier)
            try:
                yield carrier
            except expected as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise
            except Exception as error:
                fail(span, hide_personal(error, of))
                raise
            finally:
                span.end()
