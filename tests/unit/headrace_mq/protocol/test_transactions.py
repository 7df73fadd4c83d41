"""How transactions stand on the wire."""

import msgspec
import pytest

from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.transactions import Bundle, BundlePart, Outcome, read_head


def test_the_head_of_a_bundle_is_read_without_its_batches() -> None:
    bundle = Bundle("g", "c", ["one", "two"], [BundlePart(b"batch", [0, 1])])
    head = read_head(encode(bundle))
    assert (head.group, head.client_id, head.ids) == ("g", "c", ["one", "two"])
    assert decode(Bundle, encode(bundle)) == bundle


def test_other_bytes_are_no_bundle() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_head(b"junk")


def test_the_numbers_of_outcomes_never_change() -> None:
    assert {outcome.name: int(outcome) for outcome in Outcome} == {
        "UNDECIDED": 0,
        "COMMITTED": 1,
        "ROLLED_BACK": 2,
        "KEPT_ASIDE": 3,
        "FORGOTTEN": 4,
    }
