"""The summary: the JSON that a machine reads, and the sentences that a person reads."""

import io
import json

from rich.console import Console

from samples.bank.demo.summary import DIFFERENCES_SHOWN_MAX, Outcome, show


def shown(outcome: Outcome) -> str:
    text = io.StringIO()
    show(outcome, Console(file=text, width=200))
    return text.getvalue()


def test_the_json_counts_differences() -> None:
    outcome = Outcome(
        accounts=2,
        commands=5,
        events=7,
        new_events=6,
        live=["a"],
        spark=[],
        restarts=1,
        seconds=1.26,
    )
    assert json.loads(outcome.to_json()) == {
        "accounts": 2,
        "commands": 5,
        "events": 7,
        "new_events": 6,
        "mismatches_live": 1,
        "mismatches_spark": 0,
        "restarts": 1,
        "seconds": 1.3,
    }


def test_a_rebuild_that_did_not_run_counts_as_null() -> None:
    assert json.loads(Outcome().to_json())["mismatches_spark"] is None
    assert "not run: it or Java is missing" in shown(Outcome())


def test_a_run_that_changed_nothing_says_so() -> None:
    assert "every command was known already" in shown(Outcome(events=9))
    assert "3 of them new" in shown(Outcome(events=9, new_events=3))


def test_differences_are_shown_and_counted_but_not_without_end() -> None:
    text = shown(Outcome(live=[f"row {n}" for n in range(50)], spark=["s"]))
    assert text.count("differs") == DIFFERENCES_SHOWN_MAX
    assert "50 differences" in text


def test_a_clean_run_says_that_no_cent_was_lost() -> None:
    text = shown(Outcome(transfers={"completed": 3, "cancelled": 1}, spark=[]))
    assert "1 cancelled, 3 completed; no cent made or lost" in text
    assert text.count("every row is the same") == 2
