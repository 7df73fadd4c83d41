"""
Suites that hold every adapter of a port to the port's words; for authors of adapters.

Sits between: the ports' docstrings and the tests of adapters, which subclass a suite and give it
fixtures. Needs pytest with pytest-asyncio in auto mode to run, not to import.
"""
