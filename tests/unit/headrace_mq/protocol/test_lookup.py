"""The answer of a search: a struct, then batches, and nothing else is taken for it."""

import pytest

from headrace_mq.errors import MalformedRequest
from headrace_mq.protocol.lookup import FindAnswer, decode_find_answer, encode_find_answer


def test_an_answer_comes_back_with_its_batches_behind_it() -> None:
    answer = FindAnswer(3, "forever", 1 << 40)
    data = encode_find_answer(answer) + b"batches"
    decoded, batches = decode_find_answer(memoryview(data))
    assert (decoded, bytes(batches)) == (answer, b"batches")


@pytest.mark.parametrize("length", [0, 3, 4, 8])
def test_an_answer_that_is_cut_off_is_refused(length: int) -> None:
    data = encode_find_answer(FindAnswer(3, "forever", 1 << 40))
    with pytest.raises(MalformedRequest):
        decode_find_answer(memoryview(data[:length]))
