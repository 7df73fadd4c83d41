"""
For your tests: scenarios for aggregates, fakes, and conformance suites for adapters.

Used by tests only; a running application imports none of it.
"""
