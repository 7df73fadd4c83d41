"""`headrace subject`: who has a key, and forgetting."""

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.application.subject import commands
from headrace.errors import DefinitionError, SubjectKeysError
from headrace.stores.database.schema import upgrade
from headrace.stores.subject_keys import DatabaseKeys
from headrace.subjects.folder import FolderKeys

APPLICATION = """
from typing import Annotated

from pydantic import BaseModel

from headrace import Aggregate, App, DomainEvent, EventContext, Personal, Projection, applies
from headrace.subjects.folder import FolderKeys


class Registered(DomainEvent):
    customer_id: str
    email: Annotated[str, Personal(subject="customer_id")]


class Customer(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _registered(self, event: Registered) -> None: ...


class Contact(BaseModel):
    customer: str
    email: str


contacts = Projection("contacts", row=Contact, key="customer")


@contacts.fold
def registered(row: Contact | None, event: Registered, context: EventContext) -> Contact:
    return Contact(customer=context.aggregate_id, email=event.email)


app = App("customers")
app.add(Customer, contacts)
app.keep_keys(FolderKeys("keys"))
"""


@pytest.fixture(autouse=True)
def _application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "subject_app.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("subject_app", None)


def told(*arguments: str, answer: str = "") -> str:
    made = CliRunner().invoke(commands, [*arguments, "--app", "subject_app:app"], input=answer)
    if made.exception and not isinstance(made.exception, SystemExit):
        raise made.exception
    return made.output


def test_a_subject_is_forgotten_and_the_projections_to_rebuild_are_named():
    FolderKeys("keys").make("c-1")
    output = told("forget", "c-1", "--yes")
    assert output == (
        "the key of 'c-1' is destroyed\n"
        "a backup from before has the key: note who is forgotten with --note FILE\n"
        "rows may still hold plain values; rebuild: contacts\n"
    )
    assert "had no key" in told("forget", "c-1", "--yes")
    assert FolderKeys("keys").make("c-1") is None


@pytest.fixture
async def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DatabaseKeys:
    """The keys of the application where it says nothing of them: in the database of the events."""
    monkeypatch.setenv("HEADRACE_EVENT_STORE", "sqlite:///events.db")
    source = APPLICATION.replace('app.keep_keys(FolderKeys("keys"))\n', "")
    (tmp_path / "subject_app.py").write_text(source)
    await upgrade("sqlite:///events.db")
    return DatabaseKeys("sqlite:///events.db")


def test_subjects_in_the_database_of_the_events_are_listed_and_forgotten(table: DatabaseKeys):
    table.make("c-1")
    table.make("c-2")
    assert "is destroyed" in told("forget", "c-2", "--yes")
    assert table.find("c-2") is None
    one, two = map(json.loads, told("list", "--json").splitlines())
    assert (one["subject"], one["forgotten_at"], two["subject"]) == ("c-1", None, "c-2")
    table.close()


def test_a_folder_is_used_if_it_is_named(table: DatabaseKeys, tmp_path: Path):
    table.make("c-1")
    FolderKeys("keys").make("c-2")
    told("forget", "c-2", "--keys-folder", "keys", "--yes")
    assert [each.forgotten_at is None for each in FolderKeys("keys").subjects()] == [False]
    assert [each.subject for each in table.subjects()] == ["c-1"]
    with pytest.raises(SubjectKeysError, match="no folder of keys other"):
        told("list", "--keys-folder", "other")
    table.close()


def test_after_a_restore_the_forgotten_are_forgotten_again(table: DatabaseKeys):
    for each in ("c-1", "c-2", "c-3"):
        table.make(each)
    backup = Path("backup.db")
    with sqlite3.connect("events.db") as live, sqlite3.connect(backup) as copy:
        live.backup(copy)
    live.close()
    copy.close()
    for each in ("c-1", "c-2"):
        assert "note who" not in told("forget", each, "--note", "forgotten.jsonl", "--yes")
    restored = DatabaseKeys("sqlite:///backup.db")
    assert restored.find("c-1")
    output = told(
        "forget", "--again", "forgotten.jsonl", "--event-store", "sqlite:///backup.db", "--yes"
    )
    assert output.startswith("2 of 2 subjects had a key, which is destroyed now\nrows may")
    assert [each.subject for each in restored.subjects() if not each.forgotten_at] == ["c-3"]
    Path("list").write_text(told("list", "--forgotten", "--json"))
    assert "0 of 2 subjects" in told("forget", "--again", "list", "--yes")
    assert "of 2 subjects for ever?" in told("forget", "--again", "list", answer="n\n")
    table.close()
    restored.close()


def test_nothing_is_forgotten_that_cannot_be_noted(table: DatabaseKeys):
    table.make("c-1")
    with pytest.raises(SubjectKeysError, match="so nothing was forgotten"):
        told("forget", "c-1", "--note", "no/list", "--yes")
    assert table.find("c-1")
    table.close()


def test_a_database_without_keys_is_named(table: DatabaseKeys):
    with pytest.raises(SubjectKeysError, match=r"no database sqlite:///other\.db .*db upgrade"):
        told("list", "--event-store", "sqlite:///other.db")
    sqlite3.connect("old.db").execute("CREATE TABLE one (two INTEGER)").connection.close()
    with pytest.raises(SubjectKeysError, match=r"run: headrace db upgrade --url sqlite:///old\.db"):
        told("list", "--event-store", "sqlite:///old.db")
    assert "the memory of another" in told("list", "--event-store", "memory://")


def test_one_subject_or_a_list_is_asked_for():
    assert "give the id of one subject, or --again FILE" in told("forget", "--yes")
    assert "give the id of one subject" in told("forget", "c-1", "--again", "list")


def test_nothing_is_destroyed_without_a_yes():
    key = FolderKeys("keys").make("c-1")
    assert "for ever?" in told("forget", "c-1", answer="n\n")
    assert FolderKeys("keys").find("c-1") == key


def test_subjects_are_listed_with_the_moment_of_forgetting():
    assert told("list") == "no such subjects\n"
    keys = FolderKeys("keys")
    keys.make("c-1")
    keys.make("c-2")
    keys.forget("c-2")
    one, two = map(json.loads, told("list", "--json").splitlines())
    assert one == {"subject": "c-1", "forgotten_at": None}
    assert two["forgotten_at"]
    assert "c-1" in told("list")
    assert "c-1" not in told("list", "--forgotten")


def test_an_application_without_personal_fields_says_what_to_do():
    with pytest.raises(DefinitionError, match="no personal fields; see docs/forgetting"):
        CliRunner().invoke(commands, ["list", "--app", "samples.bank:app"], catch_exceptions=False)
