"""A transfer's own rules: it ends once, one way or the other."""

import pytest

from headrace.testing.scenario import scenario
from samples.bank.transfers import (
    SameAccount,
    Transfer,
    TransferCancelled,
    TransferCompleted,
    TransferRequested,
)

REQUESTED = TransferRequested(source="a", target="b", amount=5)
ENDS = [TransferCompleted(), TransferCancelled(reason="no")]


def test_a_transfer_is_requested_between_two_accounts() -> None:
    scenario(Transfer).when(lambda _: Transfer.request("m-1", "a", "b", 5)).then(REQUESTED)
    scenario(Transfer).when(lambda _: Transfer.request("m-1", "a", "a", 5)).then_raises(SameAccount)


def test_a_requested_transfer_is_completed_or_cancelled() -> None:
    scenario(Transfer).given(REQUESTED).when(Transfer.complete).then(TransferCompleted())
    scenario(Transfer).given(REQUESTED).when(lambda t: t.cancel("no")).then(ENDS[1])


@pytest.mark.parametrize("end", ENDS)
def test_a_transfer_that_has_ended_stays_as_it_is(
    end: TransferCompleted | TransferCancelled,
) -> None:
    scenario(Transfer).given(REQUESTED, end).when(Transfer.complete).then_nothing()
    scenario(Transfer).given(REQUESTED, end).when(lambda t: t.cancel("no")).then_nothing()
