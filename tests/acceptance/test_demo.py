"""`make demo` end to end: real processes, a real kill, real Spark, and what it says of them."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

HEADER = "transaction_id,account_id,date,kind,operation,amount,balance_after\n"
CLEAN = {"mismatches_live": 0, "mismatches_spark": 0, "restarts": 1}
REAL_TRANSACTIONS = Path("..") / "shared" / "data" / "czech_bank_transactions.csv"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def journal(rows: int, accounts: int, *, wrong_from: int | None = None) -> str:
    """Makes transactions of accounts that are often overdrawn."""
    lines, balances = [], [0] * accounts
    for number in range(rows):
        account = number % accounts
        amount = 1 + number * 7 % 1_000
        kind = "debit" if number % 3 else "credit"
        balances[account] += amount if kind == "credit" else -amount
        balance = balances[account] + (1 if wrong_from is not None and number >= wrong_from else 0)
        lines.append(f"t{number},a{account},2025-01-01,{kind},x,{cents(amount)},{cents(balance)}\n")
    return HEADER + "".join(lines)


def cents(amount: int) -> str:
    return f"{'-' * (amount < 0)}{abs(amount) // 100}.{abs(amount) % 100:02d}"


def test_the_default_data_set_ends_without_a_difference_and_sent_again_changes_nothing(
    start_demo: Any,
) -> None:
    first = start_demo(java=True).wait()
    assert first.status == 0, first.output + first.errors
    assert first.result.items() >= CLEAN.items()
    assert first.result["accounts"] == 200
    assert first.result["new_events"] == first.result["events"] > first.result["commands"]
    assert "no cent made or lost" in first.said
    assert "headrace console" in first.said

    second = start_demo(java=False).wait()
    assert second.status == 3, second.output + second.errors
    assert second.result["events"] == first.result["events"]
    assert second.result["new_events"] == 0
    assert (second.result["mismatches_live"], second.result["mismatches_spark"]) == (0, None)
    assert "every command was known already" in second.said
    assert "openjdk-17" in second.said


def test_real_transactions_end_without_a_difference(start_demo: Any, root: Path) -> None:
    file = root / REAL_TRANSACTIONS
    if not file.exists():
        pytest.skip(f"{REAL_TRANSACTIONS} is not on this machine; it may not be copied")
    done = start_demo("--transactions", str(file), java=True).wait()
    assert done.status == 0, done.output + done.errors
    assert done.result.items() >= CLEAN.items()
    assert (done.result["accounts"], done.result["commands"]) == (587, 9_230 + 587)
    assert done.result["events"] == 9_230 + 587


def test_accounts_may_be_overdrawn_and_a_row_may_stand_twice(
    start_demo: Any, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    text = journal(600, 7)
    file.write_text(text + text.splitlines(keepends=True)[-1], encoding="utf-8")
    done = start_demo("--transactions", str(file)).wait()
    assert done.status == 3, done.output + done.errors
    assert (done.result["mismatches_live"], done.result["restarts"]) == (0, 1)
    assert (done.result["commands"], done.result["events"]) == (608, 607)


def test_a_demo_with_tls_and_a_login_ends_without_a_difference_and_tells_no_password(
    start_demo: Any, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(journal(600, 7), encoding="utf-8")
    for new_events in (607, 0):
        done = start_demo("--secure", "--transactions", str(file)).wait()
        assert done.status == 3, done.output + done.errors
        assert (done.result["mismatches_live"], done.result["new_events"]) == (0, new_events)
    demo = tmp_path / "demo"
    passwords = [(demo / f"{name}.txt").read_bytes() for name in ("root", "bank")]
    files = [path for path in demo.rglob("*") if path.is_file() and path.suffix != ".txt"]
    assert [path.name for path in files if "log" in path.suffix and path.stat().st_size] != []
    for path in files:
        content = path.read_bytes()
        assert not any(password in content for password in passwords), path
    assert all(word not in done.output.encode() for word in passwords)


def test_a_demo_on_three_brokers_loses_its_leader_and_nothing_else(
    start_demo: Any, tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_RECORD", postgres_database)
    file = tmp_path / "rows.csv"
    file.write_text(journal(600, 7), encoding="utf-8")
    for new_events in (607, 0):
        done = start_demo("--replicas", "--transactions", str(file)).wait()
        assert done.status == 3, done.output + done.errors
        assert "and another one leads" in done.said
        assert (done.result["mismatches_live"], done.result["new_events"]) == (0, new_events)


def test_a_console_shows_the_bank_while_commands_go_on(start_demo: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(journal(60, 7), encoding="utf-8")
    demo = start_demo("--console", "--transactions", str(file))
    ready = next(line for line in demo.process.stdout if "console ready on" in line)
    address = ready.partition("ready on ")[2].partition(";")[0]

    def events() -> int:
        with urlopen(f"{address}/api/topic/show?topic=bank.events", timeout=120) as answer:
            shown = json.load(answer)
        return sum(one["end"] for one in shown["queues"])

    with urlopen(f"{address}/topics", timeout=120) as page:
        assert b"bank.commands" in page.read()
    begin, end = events(), time.monotonic() + 30
    while events() == begin and time.monotonic() < end:
        pass
    assert events() > begin >= 67
    demo.process.send_signal(signal.SIGINT)
    done = demo.wait()
    assert done.status == 3, done.output + done.errors
    assert done.result["mismatches_live"] == 0
    assert demo.children() == []


def test_a_balance_that_does_not_follow_is_found(start_demo: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(journal(100, 5, wrong_from=99), encoding="utf-8")
    done = start_demo("--transactions", str(file)).wait()
    assert done.status == 1
    # The account and its last statement line, and all the money together stays right.
    assert done.result["mismatches_live"] == 2
    assert "statement line t99: balance is" in done.said


def test_a_malformed_row_is_reported_before_anything_starts(
    start_demo: Any, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(journal(3, 1) + "t9,a0,2025-01-01,loan,x,1.00,1.00\n", encoding="utf-8")
    done = start_demo("--transactions", str(file)).wait()
    assert done.status == 2
    assert done.errors == f"demo: {file}, line 5: kind must be credit or debit, not 'loan'\n"
    assert done.output == ""
    assert not (tmp_path / "demo").exists()


def test_a_missing_file_is_one_sentence(start_demo: Any, tmp_path: Path) -> None:
    done = start_demo("--transactions", str(tmp_path / "none.csv")).wait()
    assert (done.status, done.errors.count("\n")) == (2, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process(
    start_demo: Any, tmp_path: Path, number: signal.Signals
) -> None:
    demo = start_demo()
    demo.wait_until("broker on ")
    assert len(demo.children()) == 2
    demo.process.send_signal(number)
    done = demo.wait()
    assert done.status == 130
    assert "demo: interrupted; its processes are stopped, and another run goes on\n" in done.errors
    assert "Traceback" not in done.errors
    assert demo.children() == []


def test_a_broker_that_dies_ends_the_demo_with_a_sentence(start_demo: Any) -> None:
    demo = start_demo()
    demo.wait_until("broker on ")
    (broker,) = demo.children("--port")
    os.kill(broker, signal.SIGKILL)
    done = demo.wait()
    assert done.status == 1
    assert "the broker ended with status -9; its log is " in done.errors
    assert "Traceback" not in done.errors
    assert demo.children() == []
