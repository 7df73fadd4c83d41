import pytest

from headrace_mq.errors import MalformedRequest
from headrace_mq.protocol import administration, bodies
from headrace_mq.protocol.administration import FindAnswer, decode_find_answer, encode_find_answer
from headrace_mq.protocol.bodies import Body


def test_every_body_is_exported_and_none_has_the_name_of_another_one() -> None:
    own = {
        name
        for name, value in vars(administration).items()
        if isinstance(value, type) and value.__module__ == administration.__name__
    }
    assert own == set(administration.__all__) - {"NO_TRAFFIC"}
    assert own & set(bodies.__all__) == set()
    assert all(issubclass(getattr(administration, name), Body) for name in own)


def test_a_search_answer_comes_back_with_its_batches_behind_it() -> None:
    answer = FindAnswer(3, "forever", 1 << 40)
    data = encode_find_answer(answer) + b"batches"
    decoded, batches = decode_find_answer(memoryview(data))
    assert (decoded, bytes(batches)) == (answer, b"batches")


@pytest.mark.parametrize("length", [0, 3, 4, 8])
def test_a_search_answer_that_is_cut_off_is_refused(length: int) -> None:
    data = encode_find_answer(FindAnswer(3, "forever", 1 << 40))
    with pytest.raises(MalformedRequest):
        decode_find_answer(memoryview(data[:length]))
