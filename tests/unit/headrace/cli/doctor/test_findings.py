"""Findings: the sentence of an error becomes what was found and what to do; the worst decides the status."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.doctor.findings import (
    EXIT_STATUS,
    Finding,
    failed,
    of_sentence,
    ok,
    shown,
    split,
    warning,
    worst,
)


@pytest.mark.parametrize(
    ("sentence", "finding", "advice"),
    [
        ("it is away; start it", "it is away", "start it"),
        ("it is away; start it; then look", "it is away", "start it; then look"),
        ("no broker answers (x; y): check that it runs", "no broker answers (x; y)", "check that it runs"),
        ("the schema [a; b] is behind; run: this", "the schema [a; b] is behind", "run: this"),
        ("it is away", "it is away", ""),
        ("a) strange; text", "a) strange", "text"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_a_sentence_is_divided_at_the_first_mark_outside_brackets(
    sentence: str, finding: str, advice: str
) -> None:
    assert split(sentence) == (finding, advice)


@given(st.text(alphabet="ab;:( )[]check", max_size=40))
def test_no_part_of_a_sentence_is_lost(sentence: str) -> None:
    finding, advice = split(sentence)
    assert sentence.startswith(finding)
    assert sentence.endswith(advice)
    assert len(sentence) - len(finding) - len(advice) in {0, 2}


def test_a_sentence_without_advice_gets_the_general_one() -> None:
    assert of_sentence("failed", "x", "it is away", "start it") == failed(
        "x", "it is away", "start it"
    )
    assert of_sentence("failed", "x", "it is away; wait", "start it").advice == "wait"


@pytest.mark.parametrize(
    ("states", "state", "status"),
    [
        ((), "ok", 0),
        (("ok", "ok"), "ok", 0),
        (("ok", "warning"), "warning", 1),
        (("failed", "warning", "ok"), "failed", 2),
    ],
)
def test_the_worst_finding_decides(states: tuple[str, ...], state: str, status: int) -> None:
    makers = {
        "ok": ok("a", "b"), "warning": warning("a", "b", "c"), "failed": failed("a", "b", "c"),
    }  # fmt: skip
    found = [makers[each] for each in states]
    assert worst(found) == state
    assert EXIT_STATUS[worst(found)] == status


def test_a_finding_without_advice_has_none() -> None:
    assert ok("a", "b") == Finding("ok", "a", "b", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("postgresql://bank:s3cret@db:5432/bank", "postgresql://bank:***@db:5432/bank"),
        ("postgresql://bank@db/bank?password=s3cret", "postgresql://bank@db/bank"),
        ("postgresql://bank:s3cret@db:x/bank", "postgresql://…"),
        ("sqlite:///var/events.db", "sqlite:///var/events.db"),
        ("memory://", "memory://"),
        ("kafka://a:1,b:2?sasl.password=s3@cret", "kafka://a:1,b:2"),
        ("tls://ann:s3cret@h:1?ca=ca.pem", "tls://h:1"),
        ("h:1", "h:1"),
        (7, 7),
        (None, None),
    ],
)
def test_a_value_is_shown_without_its_secrets(value: object, text: object) -> None:
    assert shown(value) == text
