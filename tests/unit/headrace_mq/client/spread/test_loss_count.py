"""Losses of several groups in one count, with answers that are late, old or only from some groups."""

from headrace_mq.client.spread.loss_count import LossCount
from headrace_mq.protocol.bodies import QueueRange, QueueRangesAnswer

MERGED = QueueRangesAnswer([QueueRange("t", 0, 0, 5)])


def told(losses: LossCount, **groups: tuple[int, int]) -> tuple[int, int]:
    """Epoch and lossy of what groups said, each with (epoch, lossy) of its own."""
    answers = {group: QueueRangesAnswer([], [], *said) for group, said in groups.items()}
    found = losses.stamped(answers, MERGED)
    assert found.ranges == MERGED.ranges
    return found.epoch, found.lossy


def test_a_loss_before_the_first_look_does_not_count() -> None:
    losses = LossCount()
    assert told(losses, g1=(5, 4)) == (1, 0)
    assert told(losses, g1=(6, 4), g2=(9, 9)) == (1, 0)


def test_each_loss_is_later_than_the_answers_before_it() -> None:
    losses = LossCount()
    told(losses, g1=(5, 0), g2=(90, 0))
    assert told(losses, g1=(7, 6), g2=(90, 0)) == (2, 2)
    assert told(losses, g1=(8, 6), g2=(90, 0)) == (2, 2)
    assert told(losses, g1=(8, 6), g2=(91, 91)) == (3, 3)
    assert told(losses, g2=(91, 91)) == (3, 3)


def test_an_answer_from_before_a_loss_is_not_taken_for_a_newer_one() -> None:
    losses = LossCount()
    told(losses, g1=(5, 0))
    assert told(losses, g1=(7, 6)) == (2, 2)
    assert told(losses, g1=(5, 0)) == (1, 2)


def test_an_older_broker_says_nothing_of_losses() -> None:
    losses = LossCount()
    assert told(losses, g1=(0, 0)) == (1, 0)
    assert told(losses, g1=(3, 3)) == (1, 0)
    assert told(losses) == (0, 0)
