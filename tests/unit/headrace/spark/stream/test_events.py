"""What a stream of events refuses before it begins; `tests/integration/spark` has the stream itself."""

from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.spark import read_event_stream


def test_a_broker_that_is_away_is_said_at_once() -> None:
    session: Any = object()
    with pytest.raises(ProjectionError, match=r"the events of samples.bank:app: no broker answers"):
        read_event_stream(session, "samples.bank:app", broker="127.0.0.1:1")
