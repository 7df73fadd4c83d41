"""The history says of each account what the seeds say, version by version."""

from itertools import groupby
from operator import attrgetter

from samples.bank.accounts import AccountOpened, Deposited, Withdrawn
from samples.bank.history import history


def test_each_account_is_opened_and_ends_with_the_balance_of_its_last_transaction() -> None:
    streams = sorted(history(), key=attrgetter("aggregate_id"))
    accounts = {key: list(found) for key, found in groupby(streams, attrgetter("aggregate_id"))}
    assert len(accounts) == 200
    assert len(streams) == 200 + 3_000
    for found in accounts.values():
        assert [one.version for one in found] == list(range(1, len(found) + 1))
        times = [one.recorded_at for one in found]
        assert times == sorted(times)
        [opened], *moves = (one.events for one in found)
        assert isinstance(opened, AccountOpened)
        balance = 0
        for [move] in moves:
            assert isinstance(move, Deposited | Withdrawn)
            balance += move.amount if isinstance(move, Deposited) else -move.amount
            assert balance == move.balance
