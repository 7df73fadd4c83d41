"""Recent batches in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.store.tail_cache import TailCache


@given(bytes_max=st.integers(0, 300), lengths=st.lists(st.integers(1, 120), max_size=30))
def test_the_newest_batches_that_fit_are_held_and_no_others(
    bytes_max: int, lengths: list[int]
) -> None:
    cache = TailCache(bytes_max)
    for position, length in enumerate(lengths):
        cache.put("forever", position, bytes(length))
    room, fits = bytes_max, True
    for position, length in reversed(list(enumerate(lengths))):
        room -= length
        fits = fits and room >= 0
        assert (cache.get("forever", position) is not None) == fits
    assert cache.held_bytes <= bytes_max


def test_logs_are_told_apart() -> None:
    cache = TailCache(100)
    cache.put("forever", 0, b"a")
    cache.put("transient", 0, b"b")
    assert cache.get("forever", 0) == b"a"
    assert cache.get("transient", 0) == b"b"
    assert cache.get("transient", 1) is None
