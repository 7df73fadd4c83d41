"""What cannot be written is refused before a broker is asked, and the package that is missing is named."""

import sys
from typing import Any

import pytest

from headrace.errors import ExtraMissing, ProjectionError
from headrace.spark.lake.events import lake_table, write_events


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"format": "csv"}, "there is no format csv; use 'parquet' or 'delta'"),
        ({"partition_by": ["month"]}, "cannot divide events by month; use event_type or day"),
    ],
)
def test_a_format_or_a_column_that_there_is_not_is_refused(
    arguments: dict[str, Any], sentence: str
) -> None:
    spark: Any = None
    with pytest.raises(ProjectionError, match=sentence):
        write_events(spark, "nowhere:app", "lake", broker="127.0.0.1:1", **arguments)


def test_delta_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.spark.lake.delta", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'headrace\[lake\]'"):
        lake_table("lake")
