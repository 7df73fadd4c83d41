"""
The metrics of a broker: their table, and where each value comes from.

Everything is read when Prometheus asks, from figures that the broker keeps anyway. Used by `process`, which serves
them; uses the state of a running broker, and of its group.
"""
