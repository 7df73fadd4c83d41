"""The bodies of RELEASE_MESSAGES keep their order of fields, and take ones without the newer fields."""

import msgspec

from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.releases import (
    QueueRelease,
    ReleaseAnswer,
    ReleasedQueue,
    ReleaseMessages,
)


def test_bodies_are_arrays_in_this_order() -> None:
    asked = ReleaseMessages("t", [QueueRelease(1, 5)], dry_run=True)
    assert msgspec.msgpack.decode(encode(asked)) == ["t", [[1, 5]], True]
    answer = ReleaseAnswer([ReleasedQueue("t", 1, 3, 9, 5)], 2, 100, ["u"])
    assert msgspec.msgpack.decode(encode(answer)) == [[["t", 1, 3, 9, 5]], 2, 100, ["u"]]


def test_shorter_bodies_are_taken() -> None:
    asked = decode(ReleaseMessages, msgspec.msgpack.encode(["t", []]))
    assert asked == ReleaseMessages("t", [], dry_run=False)
    assert decode(ReleaseAnswer, msgspec.msgpack.encode([[]])) == ReleaseAnswer([])
