"""
The part of PromQL that the rules use: parsed, and evaluated over figures of the last hours as Prometheus does it.

Used by the watcher of alarms; a test compares it with what Prometheus's own `promtool` computed.
"""
