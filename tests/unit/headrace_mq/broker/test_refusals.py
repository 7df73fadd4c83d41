import pytest

from headrace_mq.broker.refusals import refuse
from headrace_mq.errors import (
    BrokerStopping,
    DataCorrupt,
    FormatTooNew,
    MalformedRequest,
    ResponseCode,
)
from headrace_mq.protocol.bodies import ErrorAnswer, decode
from headrace_mq.protocol.frame import FLAG_ONEWAY, Frame


class Told:
    """A connection that keeps what it is given."""

    client_id = "c"

    def __init__(self) -> None:
        self.answers: list[tuple[int, int, str]] = []
        self.refused = False

    def answer(self, code: int, correlation: int, body: bytes) -> None:
        self.answers.append((code, correlation, decode(ErrorAnswer, body).sentence))

    def refuse(self) -> None:
        self.refused = True


def told(error: Exception, *, flags: int = 0) -> Told:
    connection = Told()
    frame = Frame(code=11, version=1, flags=flags, correlation=7, body=memoryview(b""))
    refuse(connection, frame, error)  # type: ignore[arg-type]  # what of a connection is used
    return connection


@pytest.mark.parametrize(
    ("error", "code", "fatal"),
    [
        (BrokerStopping("later"), ResponseCode.BROKER_STOPPING, False),
        (MalformedRequest("what?"), ResponseCode.MALFORMED_REQUEST, True),
        (DataCorrupt("what?"), ResponseCode.MALFORMED_REQUEST, True),
        (FormatTooNew("newer"), ResponseCode.UNSUPPORTED_VERSION, True),
    ],
)
def test_a_failure_is_answered_with_its_code_and_sentence(
    error: Exception, code: ResponseCode, fatal: bool
) -> None:
    connection = told(error)
    assert connection.answers == [(code, 7, str(error))]
    assert connection.refused is fatal


def test_a_request_that_wants_no_answer_hears_of_fatal_errors_alone() -> None:
    assert told(BrokerStopping("later"), flags=FLAG_ONEWAY).answers == []
    assert told(MalformedRequest("what?"), flags=FLAG_ONEWAY).answers != []


def test_a_defect_is_not_told_in_its_own_words() -> None:
    ((code, _, sentence),) = told(KeyError("secret")).answers
    assert code == ResponseCode.INTERNAL_ERROR
    assert "secret" not in sentence
    assert "log" in sentence
