"""
Test suites for authors of adapters: one test for each sentence that a port promises.

Used by the tests of adapters: subclass a suite and give it the fixtures that it names. You need pytest
with pytest-asyncio in auto mode to run a suite, but not to import it.
"""
