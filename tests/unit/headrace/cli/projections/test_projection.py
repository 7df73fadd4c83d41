"""`headrace projection rebuild` of several projections: each tells what becomes of it."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import Aggregate, App, DomainEvent, EventContext, Projection, applies
from headrace.cli.projections import engine as engine_module
from headrace.cli.projections.differences import show
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.folds import count
from headrace.rebuild.report import RebuildReport
from headrace.stores.open import open_event_store
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message


class Lent(DomainEvent):
    title: str


class Book(Aggregate):
    @applies
    def _lent(self, event: Lent) -> None:
        pass


class Loans(BaseModel):
    book_id: str
    times: int


def lent(row: Loans | None, event: Lent, context: EventContext) -> Loans:
    return Loans(book_id=context.aggregate_id, times=(row.times if row else 0) + 1)


def broken(row: Loans | None, event: Lent, context: EventContext) -> Loans:
    raise RuntimeError("this cannot be folded")


def library() -> App:
    """Three projections, the one in the middle with a fold that fails."""
    app = App("library")
    app.add(Book)
    for name, fold in (("loans", lent), ("broken", broken), ("lendings", lent)):
        projection = Projection(name, row=Loans, key="book_id")
        projection.fold(fold)
        app.add(projection)
    return app


def lending(version: int) -> EventStream:
    return EventStream(
        aggregate_type="Book",
        aggregate_id="b-1",
        version=version,
        command_id=f"c-{version}",
        correlation_id=f"c-{version}",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        events=(Lent(title="Faust"),),
    )


@pytest.fixture(scope="module")
def lendings(broker_address: str) -> None:
    """Three of one book, in the library's event topic."""
    encode = library().serializer.encode_stream

    async def publish() -> None:
        async with Producer(broker_address) as producer:
            await producer.create_topic("library.events", queues=1, retention="forever")
            for stream in map(lending, (1, 2, 3)):
                await producer.send(Message(topic="library.events", key="b-1", body=encode(stream)))

    asyncio.run(publish())


@pytest.fixture
def event_store(tmp_path: Path) -> str:
    """The same three in an event store."""
    url = f"sqlite:///{tmp_path / 'events.db'}"

    async def append() -> None:
        store = await open_event_store(url, library().serializer)
        await store.append(list(map(lending, (1, 2, 3))))
        await store.aclose()

    asyncio.run(append())
    return url


@pytest.fixture
def rebuild(
    lendings: None, run: Any, tmp_path: Path, event_store: str, monkeypatch: pytest.MonkeyPatch
) -> Any:
    module = ModuleType("unit_library")
    module.app = library()  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "unit_library", module)

    def run_it(*arguments: str, command: str = "rebuild", options: Any = ("--no-verify",)) -> Any:
        return run(
            "projection", command, *arguments, *options, "--app", "unit_library:app",
            "--event-store", event_store, "--read-models", f"sqlite:///{tmp_path / 'read.db'}",
        )  # fmt: skip

    return run_it


def test_the_engine_is_chosen_by_size_and_said_in_one_line(
    rebuild: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_lacking_of_spark", lambda: "")
    monkeypatch.setattr(engine_module.os, "cpu_count", lambda: 2)
    [said] = [line for line in rebuild("loans").output.splitlines() if line.startswith("engine")]
    assert said == (
        "engine replay: 3 messages to read, 0 rows now; below 9,500,000 messages the start of Spark"
        " takes longer than 2 cores save"
    )
    onto = rebuild("loans", "--from", "offsets").output
    assert "engine replay: 0 messages to read, 1 rows now; below" in onto
    stored = rebuild("loans", "--from", "store", "--no-broker").output
    assert "engine replay: 3 messages to read, 1 rows now; below" in stored
    assert "engine" not in rebuild("loans", "--engine", "replay").output
    assert "engine" not in rebuild("loans", "--json").output
    few = rebuild("loans", "--only-keys", "b-1").output
    assert "engine replay: only some rows are rebuilt" in few


def test_a_rebuild_that_fails_is_reported_after_the_others(rebuild: Any) -> None:
    done = rebuild("loans", "broken", "lendings")
    assert done.status == 2
    lines = done.output.splitlines()
    for name in ("loans", "broken", "lendings"):
        assert f"{name}: fold: 3 ahead" in lines
    assert [line for line in lines if line.startswith("table ")] == [
        "table loans__2 is live",
        "table lendings__2 is live",
    ]
    assert lines[-1].startswith(
        "projection broken: not rebuilt: projection broken cannot fold Lent b-1"
    )


def test_json_is_a_report_per_projection_and_no_phases(rebuild: Any) -> None:
    done = rebuild("loans", "lendings", "--json")
    assert done.status == 0
    reports = [json.loads(line) for line in done.output.splitlines()]
    assert [(each["projection"], each["rows"], each["switched"]) for each in reports] == [
        ("loans", 1, True),
        ("lendings", 1, True),
    ]


def test_a_single_rebuild_ends_with_its_error_and_its_phases_need_no_name(rebuild: Any) -> None:
    assert "fold: 3 ahead" in rebuild("loans").output.splitlines()
    with pytest.raises(ProjectionError, match="cannot fold"):
        rebuild("broken")


@pytest.fixture
def verify(rebuild: Any) -> Any:
    """Verifies projections whose live tables were just rebuilt."""
    assert rebuild("loans", "lendings").status == 0

    def run_it(*arguments: str) -> Any:
        return rebuild(*arguments, command="verify", options=())

    return run_it


def test_verify_reports_each_correct_table(verify: Any) -> None:
    done = verify("loans", "lendings")
    assert done.status == 0
    assert [line for line in done.output.splitlines() if line.startswith("projection ")] == [
        f"projection {name}: compared 1 rows with 3 refolded events of the store: 0 differ"
        for name in ("loans", "lendings")
    ]


def test_a_row_that_is_not_what_the_events_make_is_shown_and_ends_with_status_1(
    verify: Any, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "read.db")) as database, database:
        database.execute("UPDATE loans__2 SET times = 4")
    done = verify("loans", "lendings")
    assert done.status == 1
    assert (
        "projection loans: compared 1 rows with 3 refolded events of the store: 1 differ"
        in done.output
    )
    assert "    b-1: live 4, rebuilt 3" in done.output
    reports = [
        json.loads(line) for line in verify("loans", "lendings", "--json").output.splitlines()
    ]
    assert [(each["projection"], each["mismatches"]) for each in reports] == [
        ("loans", 1),
        ("lendings", 0),
    ]


def test_a_projection_that_cannot_be_folded_is_not_verified_and_the_others_are(verify: Any) -> None:
    done = verify("broken", "loans")
    assert done.status == 2
    assert (
        "projection loans: compared 1 rows with 3 refolded events of the store: 0 differ"
        in done.output
    )
    assert "projection broken: not verified: projection broken cannot fold" in done.output


def test_the_topic_is_what_they_are_compared_with_on_request(verify: Any) -> None:
    done = verify("loans", "--against", "topic")
    assert done.status == 0
    assert "compared 1 rows with 3 refolded events of the topic: 0 differ" in done.output
    refused = verify("loans", "--against", "hearsay")
    assert refused.status == 2


def test_a_rebuild_from_the_store_needs_a_broker_or_no_broker(rebuild: Any) -> None:
    assert rebuild("loans", "--from", "store").status == 0
    with pytest.raises(ProjectionError, match="use --no-broker"):
        rebuild("loans", "--from", "store", "--broker", "127.0.0.1:1")
    done = rebuild("loans", "--from", "store", "--no-broker")
    assert (done.status, "table loans__3 is live" in done.output) == (0, True)
    for wrong in (["--no-broker"], ["--from", "store", "--from-export", "x", "--engine", "spark"]):
        assert rebuild("loans", *wrong).status == 2


def test_an_engine_that_is_none_is_refused(verify: Any) -> None:
    assert verify("loans", "--engine", "steam").status == 2


def test_a_report_is_a_page_about_all_of_them(rebuild: Any, tmp_path: Path) -> None:
    page = tmp_path / "rebuilds.html"
    assert rebuild("loans", "lendings", "--report", str(page)).status == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    for said in ("<h2>loans</h2>", "<h2>lendings</h2>", "Seconds by phase", "Messages by queue"):
        assert said in text


def test_a_report_has_the_reading_time_of_a_queue_if_the_engine_measures_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    taken = {"messages": 1_200, "bytes": 34_000, "read_ms": 250, "work_ms": 1_500}
    report = RebuildReport(
        projection="loans", generation=2, table="loans__2", start="zero", switched=True,
        queues={"library.events/0": taken},
    )  # fmt: skip
    show(report, json=False)
    said = capsys.readouterr().out.splitlines()
    assert said[1] == (
        "  library.events/0: 1,200 messages, 34,000 bytes; waited 0.2 s, worked 1.5 s"
    )


def test_a_rebuild_of_some_rows_takes_keys_or_a_time(rebuild: Any, tmp_path: Path) -> None:
    assert rebuild("loans", "lendings").status == 0
    with closing(sqlite3.connect(tmp_path / "read.db")) as database, database:
        for table in ("loans__2", "lendings__2"):
            database.execute(f"UPDATE {table} SET times = 4")
    keys = tmp_path / "keys.txt"
    keys.write_text("b-1\n\nb-2\n", encoding="utf-8")
    done = rebuild("loans", "--only-keys", f"@{keys}", "--only-keys", "b-3", options=())
    assert done.status == 0
    assert "refolded 3 keys; 1 of them differed" in done.output.splitlines()
    for start in ("2026-01-31T12:00:00Z", "1769860800000"):
        done = rebuild("lendings", "--from", start, "--json", options=())
        report = json.loads(done.output)
        assert (report["start"], report["keys"], report["switched"]) == ("time", 1, True)
    assert rebuild("loans", "lendings", command="verify", options=()).status == 0
    done = rebuild("loans", "lendings", "--from", "offsets", "--json", options=())
    starts = [json.loads(line)["start"] for line in done.output.splitlines()]
    assert starts == ["offsets", "offsets"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ("--from", "yesterday"),
            "use 'zero', 'store', 'offsets', or a time such as 2026-01-31T14:00:00Z",
        ),
        (("--from", "offsets", "--only-keys", "a"), "leave --from out"),
        (("--only-keys", "@/nowhere"), "cannot read /nowhere"),
        (("--only-keys", "@/dev/null"), "there is no key in /dev/null"),
    ],
)
def test_keys_and_a_time_together_are_refused(
    options: tuple[str, ...], reason: str, run: Any
) -> None:
    done = run("projection", "rebuild", "loans", "--app", "library:app", *options)
    assert done.status == 2
    assert reason in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ("--engine", "replay", "--from-export", "e"),
            "exported files need --engine columns or spark",
        ),
        (("--engine", "columns"), "'columns' folds exported files: use it with --from-export"),
        (("--engine", "columns", "--from-export", "e", "--from", "offsets"), "folds from zero"),
        (("--engine", "columns", "--from-export", "e", "--from", "store"), "folds from zero"),
        (
            ("--engine", "steam", "--from-export", "e"),
            "use 'auto' or 'replay' or 'spark' or 'columns'",
        ),
    ],
)
def test_exported_files_need_an_engine_that_reads_them(
    options: tuple[str, ...], reason: str, run: Any
) -> None:
    done = run("projection", "rebuild", "loans", "--app", "library:app", *options)
    assert done.status == 2
    assert reason in " ".join(done.output.replace("│", " ").split())


def test_declared_folds_are_rebuilt_from_exported_files(
    rebuild: Any, run: Any, event_store: str, tmp_path: Path
) -> None:
    counted = Projection("counted", row=Loans, key="book_id")
    counted.on(Lent, times=count())
    sys.modules["unit_library"].app.add(counted)
    folder = str(tmp_path / "out")
    exported = run(
        "events", "export", folder, "--app", "unit_library:app", "--event-store", event_store
    )
    assert exported.status == 0
    done = rebuild("counted", "--engine", "columns", "--from-export", folder)
    assert (done.status, done.output.splitlines()[0]) == (0, "begin …")
    assert "base …" in done.output.splitlines()
    assert "table counted__2 is live" in done.output.splitlines()
    assert rebuild("counted", command="verify", options=()).status == 0
    done = rebuild("counted", "--from-export", folder)
    assert (done.status, done.output.splitlines()[0]) == (
        0,
        "engine columns: declared folds of exported files, which need no Spark",
    )
    refused = rebuild(
        "counted", "--engine", "columns", "--from-export", folder, "--only-keys", "b-1"
    )
    assert (refused.status, "makes all rows" in refused.output) == (2, True)
    with pytest.raises(ProjectionError, match="loans has folds that are Python functions"):
        rebuild("loans", "--engine", "columns", "--from-export", folder)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--engine", "replay", "--master", "spark://m:1"), "a cluster needs --engine spark"),
        (("--engine", "spark", "--master", "spark://m:1", "--remote", "sc://s:1"), "not both"),
        (("--engine", "spark", "--conf", "cores"), "use spark.KEY=VALUE"),
        (
            ("--engine", "spark", "--conf", "spark.submit.pyFiles=a.zip,b.whl"),
            "copy b.whl to a name with .zip",
        ),
    ],
)
def test_options_of_a_cluster_that_make_no_sense_are_refused(
    options: tuple[str, ...], reason: str, run: Any
) -> None:
    done = run("projection", "rebuild", "loans", "--app", "library:app", *options)
    assert done.status == 2
    assert reason in " ".join(done.output.replace("│", " ").split())
