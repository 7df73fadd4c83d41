"""
Simulates a group of brokers: `simulated_cluster` runs one seed, on the `machines` of a group.

Used by the tests of `headrace_mq.cluster`; uses nothing else of the queue.
"""
