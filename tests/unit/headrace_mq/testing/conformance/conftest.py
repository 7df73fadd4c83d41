"""A sound broker into which a test plants a defect, and how the suite is to notice."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from headrace_mq.errors import MessageQueueError
from headrace_mq.testing.conformance.deployment import EmbeddedDeployment


@pytest.fixture
async def deployment() -> AsyncIterator[EmbeddedDeployment]:
    deployment = EmbeddedDeployment()
    await deployment.start()
    yield deployment
    await deployment.aclose()


@pytest.fixture
def noticed() -> Callable[[], AbstractContextManager[Any]]:
    """The block fails as a test of the suite fails."""
    return lambda: pytest.raises((AssertionError, MessageQueueError, TimeoutError))
