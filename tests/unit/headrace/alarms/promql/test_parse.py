"""The part of PromQL that the rules use is read as Prometheus reads it, and no more than that is."""

import pytest

from headrace.alarms.promql.parse import (
    Aggregation,
    Binary,
    Call,
    Matcher,
    Number,
    Selector,
    duration_s,
    parse,
)


def series(name: str, range_s: float = 0.0, offset_s: float = 0.0) -> Selector:
    return Selector(name, (), range_s, offset_s)


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ('x{a="b",c!~"d|e"} == 0', Binary("==", Selector("x", (Matcher("a", "=", "b"), Matcher("c", "!~", "d|e")), 0, 0), Number(0), None)),
        ("rate(x[5m])", Call("rate", (series("x", 300.0),))),
        ("x offset 1h", series("x", 0.0, 3_600.0)),
        ("sum by (a, b) (x)", Aggregation("sum", ("a", "b"), series("x"))),
        ("x - time() < 14 * 60", Binary("<", Binary("-", series("x"), Call("time", ()), None), Binary("*", Number(14), Number(60), None), None)),
        ("a or b unless on (c) d", Binary("or", series("a"), Binary("unless", series("b"), series("d"), ("c",)), None)),
        ("a / b / c", Binary("/", Binary("/", series("a"), series("b"), None), series("c"), None)),
    ],
)  # fmt: skip
def test_an_expression_is_read_as_a_tree(expression: str, tree: object) -> None:
    assert parse(expression) == tree


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("x ==", "ends too early"),
        ("x == 0 1", "too much"),
        ("sum(x", "'\\)' is missing"),
        ("x & y", "is not known"),
        ("[5m]", "is not known"),
        ("rate(x[5])", "no duration"),
    ],
)
def test_an_expression_that_is_none_is_a_sentence(expression: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(expression)


def test_a_duration_has_a_unit() -> None:
    assert [duration_s(text) for text in ("30s", "5m", "2h", "1d")] == [30, 300, 7_200, 86_400]
    with pytest.raises(ValueError, match="write 30s"):
        duration_s("5")
