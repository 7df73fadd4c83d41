"""A bank at work, and its samples by name and labels."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from headrace.app import RunningApp
from headrace_mq.metrics.table import Sample
from samples.bank import app


@pytest.fixture
async def bank() -> AsyncIterator[RunningApp]:
    """The bank sample, with events in memory."""
    async with app.run_local() as running:
        yield running


@pytest.fixture
def read() -> Callable[[Iterable[Sample | None]], dict[tuple[str, ...], Any]]:
    """Returns samples by their names, without the prefix, and labels."""

    def read_all(samples: Iterable[Sample | None]) -> dict[tuple[str, ...], Any]:
        found = {}
        for one in samples:
            if one is not None:
                key = (one.metric.name.removeprefix("headrace_app_"), *one.labels)
                assert key not in found, "a series twice"
                assert len(one.labels) == len(one.metric.labels)
                found[key] = one.value
        return found

    return read_all
