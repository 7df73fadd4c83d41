"""How much of an archive is a log's own, by the epochs of both."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq.archive.term import (
    EPOCHS_KEPT_MAX,
    NO_EPOCHS,
    agreed,
    decode_epochs,
    epochs_below,
)
from headrace_mq.store.replication.epochs import EpochHistory


@pytest.mark.parametrize(
    ("archived", "position", "own", "end", "expected"),
    [
        ([], 0, [], 0, 0),
        # The same leader, and its heir.
        ([(1, 0)], 100, [(1, 0)], 150, 100),
        ([(1, 0)], 100, [(1, 0), (2, 100)], 150, 100),
        ([(1, 0), (2, 100)], 120, [(1, 0), (2, 100)], 150, 120),
        # The heir lacks the end of the epoch.
        ([(1, 0)], 100, [(1, 0), (2, 60)], 150, 60),
        ([(1, 0)], 100, [(1, 0)], 60, 60),
        # The heir never heard of the epoch.
        ([(1, 0), (2, 50)], 100, [(1, 0), (3, 80)], 150, 50),
        ([(1, 0), (2, 50)], 100, [(1, 0), (3, 30)], 150, 30),
        # Equal ends of other epochs are no agreement; nor is an epoch in between.
        ([(1, 0), (3, 50)], 100, [(1, 0), (2, 50), (4, 100)], 150, 50),
        ([(2, 0)], 100, [(1, 0), (3, 100)], 100, 0),
        # The epochs that are remembered begin later.
        ([(7, 80), (8, 90)], 100, [(1, 0), (7, 80), (8, 90)], 150, 100),
        ([(7, 80), (8, 90)], 100, [(1, 0), (9, 60)], 150, 0),
    ],
)
def test_an_archive_and_a_log_agree_below_the_end_of_their_last_common_epoch(
    archived: list[Any], position: int, own: list[Any], end: int, expected: int
) -> None:
    assert agreed(EpochHistory(archived), position, EpochHistory(own), end) == expected


def test_an_archive_keeps_the_newest_epochs_below_its_position(
    leading: Callable[..., Any],
) -> None:
    term = leading(*((number, number) for number in range(1, 300)))
    kept = decode_epochs(epochs_below(term, "transient", 250)).starts
    assert len(kept) == EPOCHS_KEPT_MAX
    assert kept[-1] == (249, 249)


def test_a_broker_without_a_group_has_no_epochs() -> None:
    assert epochs_below(None, "transient", 100) == NO_EPOCHS
    assert decode_epochs(NO_EPOCHS).starts == []


def test_a_text_that_is_no_list_of_epochs_is_an_error() -> None:
    for text in ("", "{}", "[[2, 0], [1, 5]]"):
        with pytest.raises(ValueError):  # noqa: PT011 - of each reader its own
            decode_epochs(text)
