"""A record only goes forward; an older one is noticed."""

import pytest

from headrace_mq.cluster.record import GroupRecord, Identity, Refused, went_back

A = Identity("a", "1")
SEEN = GroupRecord(7, 3, "a", frozenset({A}))


@pytest.mark.parametrize(
    ("found", "is_older"),
    [
        (SEEN, False),
        (SEEN._replace(version=8), False),
        # The brokers were upgraded meanwhile.
        (SEEN._replace(lossy=2), False),
        (SEEN._replace(version=8, epoch=4, leader="b"), False),
        (SEEN._replace(version=6), True),
        (SEEN._replace(version=9, epoch=2), True),
        # Two histories of the database: another change has the same number.
        (SEEN._replace(in_sync=frozenset()), True),
        (SEEN._replace(leader="b"), True),
    ],
)
def test_a_record_that_went_back_is_recognised(found: GroupRecord, is_older: bool) -> None:
    assert went_back(SEEN, found) is is_older


def test_a_refusal_brings_the_record_that_is_there() -> None:
    refused = Refused(SEEN)
    assert refused.record == SEEN
    assert "version 7" in str(refused)
