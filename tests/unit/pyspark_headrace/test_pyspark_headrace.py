"""Spark finds the data source by itself, and is never disturbed by looking for it."""

import importlib
import importlib.util
from pkgutil import iter_modules

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

import pyspark_headrace
from headrace_mq.spark.source import SCHEMA, HeadraceDataSource

OPTIONS = {"broker": "127.0.0.1:9", "topic": "orders"}


def test_spark_finds_the_source_as_it_looks_for_it() -> None:
    assert "pyspark_headrace" in {each.name for each in iter_modules()}
    assert issubclass(pyspark_headrace.DefaultSource, DataSource)
    assert pyspark_headrace.DefaultSource.name() == HeadraceDataSource.name()


def test_filters_are_left_to_spark_unless_they_are_asked_for() -> None:
    def takes_filters(kind: type[HeadraceDataSource], **options: str) -> bool:
        reader = kind(OPTIONS | options).reader(SCHEMA)
        return type(reader).pushFilters is not DataSourceReader.pushFilters

    found = pyspark_headrace.DefaultSource
    assert not takes_filters(found)
    assert takes_filters(found, pushFilters="true")
    assert takes_filters(HeadraceDataSource)
    assert not takes_filters(HeadraceDataSource, pushFilters="false")


def test_without_arrow_there_is_no_source_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    spec_of = importlib.util.find_spec
    with monkeypatch.context() as patched:
        patched.setattr(
            importlib.util, "find_spec", lambda name: None if name == "pyarrow" else spec_of(name)
        )
        patched.delattr(pyspark_headrace, "DefaultSource")
        assert not hasattr(importlib.reload(pyspark_headrace), "DefaultSource")
    importlib.reload(pyspark_headrace)
