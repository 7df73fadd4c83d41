"""
Figures of a process for Prometheus: how a metric is described, counted, written as text, and served.

It never knows what a figure means; the tables of brokers and applications do. Used by `broker.metrics` and by the
framework's `metrics`; uses `prometheus-client` for the text alone.
"""
