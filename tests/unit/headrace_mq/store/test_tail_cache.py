"""Recent batches in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.store.tail_cache import TailCache


@given(
    bytes_max=st.integers(0, 300),
    groups=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=3), max_size=30),
)
def test_the_newest_groups_that_fit_are_held_and_no_others(
    bytes_max: int, groups: list[list[int]]
) -> None:
    cache = TailCache(bytes_max)
    for number, lengths in enumerate(groups):
        group = {number * 10 + at: bytes(size) for at, size in enumerate(lengths)}
        cache.put("forever", group, sum(lengths))
    room, fits = bytes_max, True
    for number, lengths in reversed(list(enumerate(groups))):
        room -= sum(lengths)
        fits = fits and room >= 0
        for at, size in enumerate(lengths):
            assert cache.get("forever", number * 10 + at) == (bytes(size) if fits else None)
    assert cache.held_bytes <= bytes_max


def test_logs_are_told_apart() -> None:
    cache = TailCache(100)
    cache.put("forever", {0: b"a"}, 1)
    cache.put("transient", {0: b"b"}, 1)
    assert cache.get("forever", 0) == b"a"
    assert cache.get("transient", 0) == b"b"
    assert cache.get("transient", 1) is None
    assert cache.get("neither", 0) is None
