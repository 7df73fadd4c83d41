"""The engine is the one that is done first; what was asked for decides before the size does."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import App
from headrace.cli.projections import engine as engine_module
from headrace.cli.projections.engine import Choice, Size, choose, chosen, crossing


@given(cores=st.integers(1, 256))
def test_more_cores_make_spark_worth_it_sooner(cores: int) -> None:
    here, more = crossing(cores), crossing(cores + 1)
    if here is not None:
        assert more is not None
        assert 3_000_000 < more <= here


def test_two_cores_cross_at_ten_million_and_one_never() -> None:
    assert crossing(1) is None
    two = crossing(2)
    assert two is not None
    assert 9_000_000 <= two <= 11_000_000


@given(messages=st.integers(0, 10**9), cores=st.integers(1, 64))
def test_the_choice_follows_the_crossing_and_says_both_numbers(messages: int, cores: int) -> None:
    choice, limit = choose(Size(messages, 7), cores), crossing(cores)
    wants_spark = limit is not None and messages >= limit
    assert choice.engine == ("spark" if wants_spark else "replay")
    assert choice.why.startswith(f"{messages:,} messages to read, 7 rows now; ")
    if limit is not None:
        assert f"{limit:,} messages" in choice.why
    assert "\n" not in choice.why


def test_a_cluster_and_a_few_rows_decide_before_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_lacking_of_spark", lambda: "no Java")

    def asked(**of: Any) -> Choice:
        return chosen(App("empty"), [], {}, **{"needs_spark": "", "few": False, **of})

    assert asked(needs_spark="a cluster", few=True) == ("spark", "a cluster needs it")
    assert asked(few=True) == ("replay", "only some rows are rebuilt")
    assert asked() == ("replay", "no Java")


def test_exported_files_are_folded_in_columns_where_that_is_possible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    why = ""

    def unsuited(app: App, names: list[str], export: Path, *, vouched: bool) -> str:
        asked.append((names, export, vouched))
        return why

    monkeypatch.setattr("headrace.spark.columns.rebuild.unsuited", unsuited)

    def choice(*, needs: str = "", few: bool = False, **more: Any) -> Choice:
        choices = {"start": "zero", "event_store_url": "memory://", **more}
        return chosen(App("empty"), ["one"], choices, needs_spark=needs, few=few, export=tmp_path)

    assert choice().engine == "columns"
    assert choice(event_store_url="sqlite:///events.db").engine == "columns"
    assert asked == [(["one"], tmp_path, False), (["one"], tmp_path, True)]
    assert choice(needs="a cluster") == ("spark", "a cluster needs it")
    assert choice(few=True) == ("spark", "--from-export needs it: only some rows are rebuilt")
    assert choice(start="offsets").why == "--from-export needs it: live rows are gone on with"
    why = "projection one has folds that are Python functions"
    assert choice() == ("spark", f"--from-export needs it: {why}")


def test_a_topic_that_cannot_be_counted_is_left_to_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "_lacking_of_spark", lambda: "")
    choices = {"source": "topic", "broker": "127.0.0.1:1", "read_models_url": "sqlite:///none.db"}
    assert chosen(App("empty"), [], choices, needs_spark="", few=False) == ("replay", "")


def test_without_java_there_is_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    assert "Java" in engine_module._lacking_of_spark()
    monkeypatch.setenv("JAVA_HOME", "/usr/lib/jvm/some")
    assert engine_module._lacking_of_spark() == ""
