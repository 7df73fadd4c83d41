"""
A test suite of the queue's promises, for any deployment of the broker.

Used by tests of deployments, which subclass the suite and give it a fixture. Needs pytest with
pytest-asyncio in auto mode to run, not to import.
"""
