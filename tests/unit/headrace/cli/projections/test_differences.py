"""What a comparison found is told for a person, and as a line of JSON."""

import json
from typing import Any

import pytest

from headrace.cli.projections.differences import show, show_comparison
from headrace.rebuild.report import RebuildReport


def report(**found: Any) -> RebuildReport:
    given = {"projection": "loans", "generation": 2, "table": "loans__2", "start": "zero", **found}
    return RebuildReport(**given)


def test_differences_are_printed_by_column_and_by_key(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(
        source="store", compared=3, events=9, mismatches=2, behind=4, ahead=5,
        columns={"times": 1_000, "no live row": 1, "no rebuilt row": 1},
        samples={
            "times": (("b-1", 1, 2), ("b-3", None, 4)),
            "no live row": (("b-2", None, {"times": 3}),),
            "no rebuilt row": (("b-4", {"times": 4}, None),),
        },
    )  # fmt: skip
    show_comparison(found, json=False)
    first, behind, ahead, *rest = capsys.readouterr().out.splitlines()
    assert first == (
        "projection loans: compared 3 rows with 9 refolded events of the store: 2 differ"
    )
    assert "lack events of 4 aggregates" in behind
    assert "have events of 5 aggregates" in ahead
    assert rest == [
        "  1 have no live row",
        "    b-2: rebuilt {'times': 3}",
        "  1 have no rebuilt row",
        "    b-4: live {'times': 4}",
        "  1,000 differ in times",
        "    b-1: live 1, rebuilt 2",
        "    b-3: live None, rebuilt 4",
    ]


def test_a_report_without_a_comparison_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    show_comparison(report(reason="it is behind"), json=False)
    assert capsys.readouterr().out == "projection loans: not compared: it is behind\n"


def test_a_rebuild_ends_with_what_is_live(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(switched=True, reason="nothing was compared"), json=False)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "table loans__2 is live",
        "nothing was compared",
    ]
    show(report(reason="1 of 2 rows differ"), json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "not switched: 1 of 2 rows differ"


@pytest.mark.parametrize("tell", [show, show_comparison])
def test_json_is_the_report(tell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tell(report(behind=3), json=True)
    assert json.loads(capsys.readouterr().out)["behind"] == 3
