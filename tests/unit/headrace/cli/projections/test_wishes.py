"""`--as-of` takes a time or offsets, and only what goes with it."""

from typing import Any

import pytest
import typer

from headrace.cli.projections.wishes import moment_of
from headrace.rebuild.local.moment import Moment

PLAIN: dict[str, Any] = {"engine": "replay", "start": "zero", "some": False}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, None),
        ("0:17", Moment(text="0:17", offsets={0: 17})),
        ("0:17,1:0", Moment(text="0:17,1:0", offsets={0: 17, 1: 0})),
        ("1769868000000", Moment(text="1769868000000", at_ms=1_769_868_000_000)),
        (
            "2026-01-31T14:00:00Z",
            Moment(text="2026-01-31T14:00:00Z", at_ms=1_769_868_000_000),
        ),
    ],
)
def test_a_moment_is_a_time_or_an_offset_of_each_queue(given: Any, meant: Any) -> None:
    assert moment_of(given, **PLAIN) == meant


@pytest.mark.parametrize("given", ["", "yesterday", "0:", "0:1,", "0:1;1:2"])
def test_other_texts_are_refused(given: str) -> None:
    with pytest.raises(typer.BadParameter):
        moment_of(given, **PLAIN)


@pytest.mark.parametrize("other", [{"engine": "spark"}, {"start": "store"}, {"some": True}])
def test_a_moment_goes_with_no_other_engine_and_no_other_start(other: Any) -> None:
    with pytest.raises(typer.BadParameter, match="leave --engine, --from and --only-keys out"):
        moment_of("0:1", **PLAIN | other)
    assert moment_of(None, **PLAIN | other) is None
