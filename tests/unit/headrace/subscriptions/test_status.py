"""The status of a projection."""

from datetime import UTC, datetime

import pytest

from headrace.subscriptions.status import ReaderState, ReaderStatus


@pytest.mark.parametrize("state", ReaderState)
def test_only_a_stopped_reader_has_failed(state: ReaderState) -> None:
    status = ReaderStatus(state=state, since=datetime(2026, 1, 1, tzinfo=UTC))
    assert status.failed == (state is ReaderState.FAILED)
