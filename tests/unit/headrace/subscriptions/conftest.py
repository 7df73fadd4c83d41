"""The small domain, databases and transport that the readers of events share."""

from tests.unit.headrace.readers import *  # noqa: F403 - fixtures are found by name
