"""The status of a projection."""

from datetime import UTC, datetime

import pytest

from headrace.projections.status import RunnerState, RunnerStatus


@pytest.mark.parametrize("state", RunnerState)
def test_only_a_projection_that_stands_still_has_failed(state: RunnerState) -> None:
    status = RunnerStatus(state=state, since=datetime(2026, 1, 1, tzinfo=UTC))
    assert status.failed == (state is RunnerState.FAILED)
