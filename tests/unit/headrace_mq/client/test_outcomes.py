import pytest

from headrace_mq.client.outcomes import outcomes, too_late
from headrace_mq.errors import ConnectionLost, InvalidArgument, MalformedRequest
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, encode


def answer(*results: Produced) -> memoryview:
    return memoryview(encode(ProduceAnswer(list(results))))


def test_each_batch_has_its_own_outcome() -> None:
    stored = Produced("t", 0, 7)
    refused = Produced("t", 1, -1, InvalidArgument.code, "no")
    found = outcomes(answer(stored, refused), 2)
    assert found[0] == stored
    assert isinstance(found[1], InvalidArgument)
    assert str(found[1]) == "no"


def test_an_error_is_that_of_every_batch() -> None:
    lost = ConnectionLost("gone")
    assert outcomes(lost, 3) == [lost, lost, lost]


@pytest.mark.parametrize("found", [memoryview(b"?"), answer(Produced("t", 0, 7))])
def test_an_answer_that_does_not_fit_fails_all_batches(found: memoryview) -> None:
    assert [type(error) for error in outcomes(found, 2)] == [MalformedRequest, MalformedRequest]


def test_who_was_never_sent_is_not_told_of_an_unknown_outcome() -> None:
    assert str(too_late("h:1", 5, 0)) == "not sent within 5 ms to h:1"
    assert "unknown outcome: no acknowledgement from h:1 within 5 ms" in str(too_late("h:1", 5, 1))
