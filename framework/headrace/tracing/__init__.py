"""
Spans of OpenTelemetry from a command to what it causes, for those who want them.

`spans` (makes and carries them) -> `bus`, `transport`, `store` (parts of an application that make
some) -> `traced_parts` (puts these in place of the parts themselves). The trace is carried in the items
of commands and events, so that it outlasts retries, restarts and letters.

Used by the application's parts; uses the OpenTelemetry API, which only this package loads.
"""

from headrace.tracing.traced_parts import Tracing

__all__ = ["Tracing"]
