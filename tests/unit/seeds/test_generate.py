"""The data set: the same seed, the same bytes, and transfers that end the same in every order."""

import random
from decimal import Decimal
from pathlib import Path

import pytest

from seeds.generate import BankData, generate, write

ROOT = Path(__file__).parents[3]


def cents(money: str) -> int:
    return int(Decimal(money) * 100)


def test_generating_gives_the_bytes_that_are_kept(tmp_path: Path) -> None:
    write(generate(), tmp_path)
    for name in ("accounts", "transactions", "transfers"):
        kept = (ROOT / "seeds" / "bank" / f"{name}.csv").read_bytes()
        assert (tmp_path / f"{name}.csv").read_bytes() == kept


def test_another_seed_gives_other_data() -> None:
    assert generate(seed=1) != generate(seed=2)


@pytest.mark.parametrize("seed", range(20))
def test_every_balance_follows_from_the_rows_and_keeps_to_its_limit(seed: int) -> None:
    data = generate(seed=seed, accounts=30, transactions=300, transfers=40)
    limits = {account_id: cents(limit) for account_id, _, limit, _ in data.accounts}
    balances = dict.fromkeys(limits, 0)
    for _, account_id, _, kind, _, amount, balance_after in data.transactions:
        assert cents(amount) > 0
        balances[account_id] += cents(amount) if kind == "credit" else -cents(amount)
        assert balances[account_id] == cents(balance_after) >= -limits[account_id]
    for account_id, _, _, closes in data.accounts:
        assert closes == "no" or balances[account_id] == 0


@pytest.mark.parametrize("seed", range(20))
def test_transfers_end_the_same_in_every_order(seed: int) -> None:
    data = generate(seed=seed, accounts=30, transactions=300, transfers=60)
    shuffled = list(data.transfers)
    random.Random(seed).shuffle(shuffled)
    assert outcomes(data, data.transfers) == outcomes(data, shuffled)


def test_the_data_set_has_transfers_of_every_fate() -> None:
    ends = list(outcomes(generate(), generate().transfers).values())
    assert {end: ends.count(end) >= 5 for end in set(ends)} == {
        "completed": True,
        "source unknown": True,
        "not enough money": True,
        "target unknown": True,
        "target closed": True,
    }


def outcomes(data: BankData, transfers: list[tuple[str, str, str, str]]) -> dict[str, str]:
    """Runs the transfers one after the other in the order given."""
    limits = {account_id: cents(limit) for account_id, _, limit, _ in data.accounts}
    closed = {account_id for account_id, _, _, closes in data.accounts if closes == "yes"}
    balances = {row[1]: cents(row[6]) for row in data.transactions}
    ends = {}
    for transfer_id, source, target, money in transfers:
        if source not in balances:
            ends[transfer_id] = "source unknown"
        elif cents(money) > balances[source] + limits[source]:
            ends[transfer_id] = "not enough money"
        elif target not in balances:
            ends[transfer_id] = "target unknown"
        elif target in closed:
            ends[transfer_id] = "target closed"
        else:
            balances[source] -= cents(money)
            balances[target] += cents(money)
            ends[transfer_id] = "completed"
    return ends


def test_too_few_transactions_are_refused() -> None:
    with pytest.raises(ValueError, match="2 transactions for each"):
        generate(accounts=10, transactions=19)
