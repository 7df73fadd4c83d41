"""Reading CSV: exact cents, and a sentence with a line number for everything that is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.bank.demo.data_set import DataSet, MalformedRow, read_bank, read_transactions

ROOT = Path(__file__).parents[5]
HEADER = "transaction_id,account_id,date,kind,operation,amount,balance_after\n"
GOOD = "t-1,a-1,2025-01-01,credit,cash,10.50,10.50\n"


def read(tmp_path: Path, text: str | bytes) -> DataSet:
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_transactions(path)


def test_rows_become_signed_cents_in_file_order(tmp_path: Path) -> None:
    data = read(tmp_path, HEADER + GOOD + "t-2,a-1,2025-01-02,debit,cash,0.5,10\n")
    assert [(row.transaction_id, row.amount, row.balance_after) for row in data.transactions] == [
        ("t-1", 1050, 1050),
        ("t-2", -50, 1000),
    ]


def test_accounts_may_be_overdrawn_without_limit(tmp_path: Path) -> None:
    data = read(tmp_path, HEADER + "t-1,a-1,2025-01-01,debit,cash,7,-7\n")
    assert data.accounts["a-1"].overdraft_limit is None
    assert data.transactions[0].balance_after == -700


def test_columns_may_stand_in_any_order_and_others_beside_them(tmp_path: Path) -> None:
    data = read(
        tmp_path,
        "note,kind,amount,balance_after,date,operation,account_id,transaction_id\n"
        "x,credit,1.00,1.00,2025-01-01,cash,a-1,t-1\n",
    )
    assert data.transactions[0].amount == 100


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("t-2,a-1,2025-01-01,credit,cash,1.00", "6 values for 7 columns"),
        ("t-2,a-1,2025-01-01,credit,cash,1.00,1.00,9", "8 values for 7 columns"),
        ("t-2,a-1,2025-01-01,loan,cash,1.00,1.00", "kind must be credit or debit, not 'loan'"),
        ("t-2,a-1,2025-01-01,credit,cash,ten,1.00", "amount must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,NaN,1.00", "amount must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,1e3,1.00", "amount must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,1_0,1.00", "amount must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,\u0661,1.00", "amount must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,,1.00", "amount must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,1.005,1.00", "at most two decimals"),
        ("t-2,a-1,2025-01-01,credit,cash,1.00,1.001", "balance_after must be a number"),
        ("t-2,a-1,2025-01-01,credit,cash,0.00,1.00", "amount must be more than zero"),
        ("t-2,a-1,2025-01-01,credit,cash,-1.00,1.00", "amount must be more than zero"),
        ("t-2,a-1,2025-01-01,credit,cash," + "9" * 16 + ",1.00", "amount must be a number"),
        (",a-1,2025-01-01,credit,cash,1.00,1.00", "transaction_id must have 1 to 200"),
        ("t-2," + "a" * 201 + ",2025-01-01,credit,cash,1.00,1.00", "account_id must have 1 to 200"),
        ("t-1,a-2,2025-01-01,credit,cash,1.00,1.00", "'t-1' stands on line 2 with other values"),
        ('t-2,a-1,"2025"-01-01,credit,cash,1.00,1.00', "not CSV"),
    ],
)
def test_a_malformed_row_is_reported_with_its_line(tmp_path: Path, row: str, sentence: str) -> None:
    with pytest.raises(MalformedRow) as caught:
        read(tmp_path, HEADER + GOOD + row + "\n")
    assert "rows.csv, line 3: " in str(caught.value)
    assert sentence in str(caught.value)


def test_a_file_without_a_column_is_reported_on_line_one(tmp_path: Path) -> None:
    with pytest.raises(MalformedRow, match=r"line 1: .* amount, balance_after"):
        read(tmp_path, "transaction_id,account_id,date,kind,operation\n")


def test_an_empty_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MalformedRow, match="line 1"):
        read(tmp_path, "")


def test_text_that_is_not_utf8_is_reported_on_its_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedRow, match="line 3: not UTF-8"):
        read(tmp_path, (HEADER + GOOD).encode() + b"t-\xff,a-1,d,credit,c,1.00,1.00\n")


def test_a_byte_order_mark_windows_line_ends_and_empty_lines_are_fine(tmp_path: Path) -> None:
    text = "\ufeff" + (HEADER + GOOD + "\n").replace("\n", "\r\n")
    assert len(read(tmp_path, text).transactions) == 1


def test_a_row_that_stands_twice_is_sent_twice(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEADER + GOOD + GOOD).transactions) == 2


def test_another_content_is_another_data_set(tmp_path: Path) -> None:
    one = read(tmp_path, HEADER + GOOD).name
    assert one.startswith("rows-")
    assert read(tmp_path, HEADER + GOOD).name == one
    assert read(tmp_path, HEADER).name != one


@given(cents=st.integers(min_value=1, max_value=10**17 - 1))
def test_every_amount_is_read_exactly(tmp_path_factory: pytest.TempPathFactory, cents: int) -> None:
    money = f"{cents // 100}.{cents % 100:02d}"
    data = read(tmp_path_factory.mktemp("d"), HEADER + f"t,a,d,debit,c,{money},-{money}\n")
    assert (data.transactions[0].amount, data.transactions[0].balance_after) == (-cents, -cents)


def test_the_kept_data_set_can_be_read() -> None:
    data = read_bank(ROOT / "seeds" / "bank")
    assert (len(data.accounts), len(data.transfers)) == (200, 150)
    assert {account.closes for account in data.accounts.values()} == {True, False}


def test_a_bank_with_a_wrong_word_is_reported(tmp_path: Path) -> None:
    (tmp_path / "accounts.csv").write_text(
        "account_id,owner,overdraft_limit,closes\na-1,Ada,0.00,maybe\n", encoding="utf-8"
    )
    with pytest.raises(MalformedRow, match=r"accounts.csv, line 2: closes must be yes or no"):
        read_bank(tmp_path)
