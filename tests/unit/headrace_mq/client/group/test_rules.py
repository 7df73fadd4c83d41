import msgspec
from structlog.testing import capture_logs

from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.protocol.bodies import GroupAnswer, decode


def test_a_pause_is_logged_when_it_begins_and_when_it_ends() -> None:
    rules = CurrentGroupRules("g")
    with capture_logs() as logs:
        for consume in (True, False, False, True):
            rules.hear(GroupAnswer(1, [], consume))
            assert rules.consume == consume
    assert [(log["log_level"], log["group"]) for log in logs] == [("warning", "g"), ("info", "g")]


def test_a_number_of_retries_counts_as_long_as_it_is_said() -> None:
    rules = CurrentGroupRules("g")
    for said, heard in ((-1, None), (0, 0), (5, 5), (-1, None)):
        rules.hear(GroupAnswer(1, [], True, said))
        assert rules.retries == heard


def test_a_broker_of_the_version_before_says_nothing() -> None:
    rules = CurrentGroupRules("g")
    rules.hear(decode(GroupAnswer, msgspec.msgpack.encode([1, []])))
    assert (rules.consume, rules.retries) == (True, None)
