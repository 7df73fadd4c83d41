"""
A suite that holds every deployment of the broker to its word, wherever it runs and stores.

Sits between: what the queue promises, and the tests of deployments, which subclass the suite and
give it a fixture. Needs pytest with pytest-asyncio in auto mode to run, not to import.
"""
