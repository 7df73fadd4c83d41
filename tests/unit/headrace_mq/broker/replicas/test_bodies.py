"""The bodies of FOLLOW keep their order of fields, and take ones without the newer fields."""

import msgspec

from headrace_mq.broker.replicas.bodies import (
    DamagedRange,
    Document,
    EpochStart,
    FollowAnswer,
    FollowRequest,
    LogEnd,
    LogPart,
    SoundRange,
)
from headrace_mq.protocol.bodies import decode, encode


def test_bodies_are_arrays_in_this_order() -> None:
    asked = FollowRequest(
        "h:1", "disk", 3, [LogEnd("forever", 9, 2, -1)], 4, 500, 1_000, "id", level=1
    )
    values = [
        "h:1",
        "disk",
        3,
        [["forever", 9, 2, -1, 0, 0, 0, 0, 0]],
        4,
        500,
        1_000,
        "id",
        [],
        [],
        [],
        1,
    ]
    assert msgspec.msgpack.decode(encode(asked)) == values
    part = LogPart("forever", 9, 2, 8, 0, 4, 64, b"x", [EpochStart(3, 9)])
    # Of what is compacted.
    newer = [0, False, b"", 0, 0, 0, 0, -1, 0]
    answer = FollowAnswer(3, [part], [Document("topics.json", 5, b"{}")])
    assert msgspec.msgpack.decode(encode(answer)) == [
        3,
        [["forever", 9, 2, 8, 0, 4, 64, b"x", [[3, 9]], False, 0, 0, False, [], *newer]],
        [["topics.json", 5, b"{}", False]],
        False,
        False,
        [],
        [],
        -1,
    ]
    assert decode(FollowAnswer, encode(answer)) == answer
    mending = FollowAnswer(3, wanted=[DamagedRange("a", 1, 2)], found=[SoundRange("a", 3, b"x")])
    assert msgspec.msgpack.decode(encode(mending))[-3:-1] == [
        [["a", 1, 2]],
        [["a", 3, b"x", False]],
    ]


def test_a_shorter_answer_is_taken() -> None:
    assert decode(FollowAnswer, msgspec.msgpack.encode([7])) == FollowAnswer(7)
    short = decode(FollowAnswer, msgspec.msgpack.encode([7, [["forever", 3]]]))
    assert short.logs == [LogPart("forever", 3)]
