import json

import pytest
import structlog

from headrace.cli.queue.administration import ask, print_json, quiet
from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.bodies import TopicDescription, TopicsAnswer


def test_a_question_is_answered_by_the_broker(broker_address: str) -> None:
    async def address(admin) -> str:
        return (await admin.describe()).broker

    assert ask(broker_address, address) == broker_address


def test_a_broker_that_is_not_there_is_an_error_of_the_queue() -> None:
    async def never(_admin) -> None:
        raise AssertionError("nobody is connected")

    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        ask("127.0.0.1:1", never)


def test_log_lines_do_not_stand_among_the_answer(
    real_logs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet()
    structlog.get_logger("any").warning("something is slow")
    shown = capsys.readouterr()
    assert ("something is slow" in shown.err, shown.out) == (True, "")


def test_bodies_are_printed_as_objects_with_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"n": 1, "answer": TopicsAnswer([TopicDescription("t", 2, "forever", [1])])})
    assert json.loads(capsys.readouterr().out) == {
        "n": 1,
        "answer": {
            "topics": [
                {
                    "topic": "t", "queues": 2, "retention": "forever",
                    "unwritable": [1], "unreadable": [], "owned": [],
                }
            ]
        },
    }  # fmt: skip
