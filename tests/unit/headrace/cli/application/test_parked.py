"""What an operator reads about letters, and the exit status, whoever has parked."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.cli.application.parked import Desk
from headrace.projections.letters import Letter
from headrace.stores.database.schema import upgrade

LETTER = Letter(
    aggregate_id="ink",
    version=3,
    queue=("shop.events", 1),
    offset=7,
    parked_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    held=2,
    retries=0,
    error="no ink today",
    traceback="print.py, line 1",
)


class Parked:
    """Letters, of which some can be taken up."""

    def __init__(self, *ids: str, mended: tuple[str, ...] = ()) -> None:
        self.letters = {each: replace(LETTER, aggregate_id=each) for each in ids}
        self.mended = mended

    async def all(self) -> list[Letter]:
        return list(self.letters.values())

    async def retry(self, aggregate_id: str) -> Letter | None:
        return None if aggregate_id in self.mended else self.letters[aggregate_id]

    skip = retry


@pytest.fixture
def make_desk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a desk over letters, beside databases that nobody looks at."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    asyncio.run(upgrade(url))
    monkeypatch.setattr("headrace.cli.logs.configure_logs", lambda _form: None)

    def make(parked: Parked, *, as_json: bool = False) -> Desk:
        return Desk(
            "processor",
            "mail",
            app_path="samples.bank:app",
            event_store=url,
            read_models=url,
            find=lambda _app, _models, _store: parked,
            as_json=as_json,
        )

    return make


def test_letters_are_a_table_or_a_line_of_json_each(make_desk: Any, capsys: Any) -> None:
    make_desk(Parked("ink")).list_all()
    shown = capsys.readouterr().out.split()
    assert {"ink", "version", "3", "2026-01-31"} <= set(shown)
    make_desk(Parked("ink"), as_json=True).list_all()
    assert json.loads(capsys.readouterr().out) == {
        "aggregate_id": "ink",
        "version": 3,
        "topic": "shop.events",
        "queue_id": 1,
        "offset": 7,
        "parked_at": "2026-01-31T12:00:00+00:00",
        "held": 2,
        "retries": 0,
        "error": "no ink today",
        "traceback": "print.py, line 1",
    }
    make_desk(Parked("ink")).list_all(traceback=True)
    assert capsys.readouterr().out.endswith("\nink\nprint.py, line 1\n")
    make_desk(Parked()).list_all()
    assert capsys.readouterr().out == "processor mail has parked nothing\n"


def test_what_is_left_is_shown_and_makes_an_exit_status(make_desk: Any, capsys: Any) -> None:
    make_desk(Parked("ink", "pen", mended=("ink", "pen"))).retry(None)
    assert capsys.readouterr().out == "2 of 2 letters of mail are done\n"
    desk = make_desk(Parked("ink", "pen", mended=("ink",)))
    with pytest.raises(SystemExit, match="1"):
        desk.retry(None)
    assert "1 of 2 letters of mail are done" in (shown := capsys.readouterr().out)
    assert ("pen" in shown, "ink  " in shown) == (True, False)
    desk.retry(["ink"])
    assert capsys.readouterr().out == "1 of 1 letters of mail are done\n"
    desk.skip("ink")
    assert capsys.readouterr().out == "ink goes on without it\n"
    with pytest.raises(SystemExit, match="1"):
        desk.skip("pen")
    assert "pen has another one that fails" in capsys.readouterr().err
