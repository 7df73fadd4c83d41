"""`headrace subject`: who has a key, and forgetting."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.application.subject import commands
from headrace.errors import DefinitionError
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
        "the key of 'c-1' is destroyed\nrows may still hold plain values; rebuild: contacts\n"
    )
    assert "had no key" in told("forget", "c-1", "--yes")
    assert FolderKeys("keys").make("c-1") is None


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
