from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headrace_mq.broker.groups.backlogs import Backlogs, Limit, level
from headrace_mq.errors import BacklogFull, InvalidArgument, Throttled
from headrace_mq.message import QueueRef
from headrace_mq.protocol.limits import BacklogDescription

A, B = QueueRef("t", 0), QueueRef("t", 1)


class GroupBacklog:
    """Where groups stand, as a test says."""

    def __init__(self, **lags: Mapping[QueueRef, int]) -> None:
        self.all = {group: dict(queues) for group, queues in lags.items()}

    def lags(self, group: str) -> Mapping[QueueRef, int]:
        return self.all.get(group, {})

    def skip(self, group: str, counts: Mapping[QueueRef, int]) -> None:
        for queue, count in counts.items():
            self.all[group][queue] -= count


def backlogs(standing: GroupBacklog, **limits: Limit) -> Backlogs:
    found = Backlogs(standing, alarm_percent=80)
    found.replace(limits)
    return found


def test_a_group_that_rejects_refuses_messages_from_its_limit_on_and_says_why() -> None:
    standing = GroupBacklog(g={A: 5, B: 4})
    limited = backlogs(standing, g=Limit(10, "reject"))
    limited.check("t")
    standing.all["g"][B] = 5
    limited.check("another")
    with pytest.raises(BacklogFull, match="group 'g' is 10 messages behind, and its limit is 10"):
        limited.check("t")
    assert not BacklogFull.retriable


def test_a_group_that_blocks_lets_producers_of_its_topics_wait_until_there_is_room() -> None:
    standing = GroupBacklog(g={A: 10})
    limited = backlogs(standing, g=Limit(10, "block"), other=Limit(10, "reject"))
    (obstacle,) = limited.blocked(["t"])
    assert obstacle.wait_ms(0) > 0
    (free,) = limited.blocked(["another"])
    assert free.wait_ms(0) == 0
    refusal = obstacle.refusal(5_000)
    assert isinstance(refusal, Throttled)
    assert "group 'g' is 10 messages behind" in str(refusal)
    standing.all["g"][A] = 9
    assert obstacle.wait_ms(0) == 0
    standing.all["g"][A] = 10
    limited.replace({})
    assert obstacle.wait_ms(0) == 0


def test_a_group_that_drops_skips_what_is_too_much_counted_and_loudly() -> None:
    standing = GroupBacklog(g={A: 9, B: 3})
    limited = backlogs(standing, g=Limit(10, "drop_oldest"))
    with capture_logs() as logs:
        limited.look(0)
        for now_ms in (1, 9_999, 10_000, 10_001):
            standing.all["g"][A] += 5
            limited.look(now_ms)
            limited.look(now_ms)
    assert sum(standing.all["g"].values()) == 10
    skips = [line for line in logs if line["event"].startswith("a group skips")]
    assert [(line["skipped"], line["skipped_in_all"]) for line in skips] == [(2, 2), (15, 17)]
    assert all(line["log_level"] == "warning" for line in skips)
    assert limited.describe() == [BacklogDescription("g", 10, "drop_oldest", 10, 22, alarm=True)]
    assert limited.drops("g")
    assert not limited.drops("another")


def test_a_group_that_cannot_be_moved_is_reported_and_fails_no_request(monkeypatch) -> None:
    standing = GroupBacklog(g={A: 11})
    limited = backlogs(standing, g=Limit(10, "drop_oldest"))

    def refuse(*_: object) -> None:
        raise InvalidArgument("the broker keeps as many offsets as it can")

    monkeypatch.setattr(standing, "skip", refuse)
    with capture_logs() as logs:
        limited.look(0)
    assert [line["event"] for line in logs] == [
        "the backlog of a group is near its limit", "a group over its backlog limit could not be moved forward",
    ]  # fmt: skip
    assert limited.describe()[0].dropped == 0


def test_an_alarm_is_raised_once_at_its_share_and_ended_below_it() -> None:
    standing = GroupBacklog(g={A: 79})
    limited = backlogs(standing, g=Limit(100, "block"))
    with capture_logs() as logs:
        limited.look(0)
        assert limited.alarms == []
        for behind in (80, 100, 81):
            standing.all["g"][A] = behind
            limited.look(0)
            assert limited.alarms == ["g"]
        standing.all["g"][A] = 79
        limited.look(0)
    assert limited.alarms == []
    assert [line["log_level"] for line in logs] == ["warning", "info"]


def test_without_its_limit_a_group_has_no_alarm() -> None:
    limited = backlogs(GroupBacklog(g={A: 100}), g=Limit(100, "reject"))
    limited.look(0)
    limited.replace({})
    assert (limited.alarms, limited.describe()) == ([], [])
    limited.check("t")


@given(lags=st.lists(st.integers(0, 50), max_size=6), share=st.floats(0, 1))
def test_a_group_skips_only_the_excess_and_most_in_its_longest_queue(
    lags: list[int], share: float
) -> None:
    held = {QueueRef("t", number): lag for number, lag in enumerate(lags)}
    excess = int(sum(lags) * share)
    counts = level(held, excess)
    assert sum(counts.values()) == excess
    assert all(0 < count <= held[queue] for queue, count in counts.items())
    left = {queue: lag - counts.get(queue, 0) for queue, lag in held.items()}
    highest = max(left.values(), default=0)
    assert all(left[queue] >= highest - 1 for queue in counts)
