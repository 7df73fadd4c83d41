"""Every frame says in which epoch it was sent."""

from typing import get_args

from headrace_mq.cluster.frames import Frame


def test_every_frame_begins_with_its_epoch() -> None:
    assert {kind._fields[0] for kind in get_args(Frame)} == {"epoch"}
