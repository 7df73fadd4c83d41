import pytest

from headrace_mq.client.handlers.failures import Again, EndlessRetryPolicy, Failure
from headrace_mq.message import QueueRef, Record

RECORD = Record(
    queue=QueueRef("t", 0), offset=0, key="", tag="", headers={}, body=b"", born_at_ms=0,
    stored_at_ms=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "pause_ms"), [(1, 10), (2, 20), (3, 40), (4, 50), (5, 50), (10**9, 50)]
)
async def test_in_place_pauses_double_up_to_their_limit(attempt: int, pause_ms: int) -> None:
    failure = Failure(RECORD, LookupError(), attempt)
    assert await EndlessRetryPolicy(10, 50).decide(failure) == Again(pause_ms)
