"""The console, its JSON and the command line have the same verbs."""

import re
from pathlib import Path

import pytest
import typer.main

import headrace.console
from headrace.cli import _command_line
from headrace.console.problems import Mistake
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.catalogue import VERBS, described, verb_at
from headrace.console.verbs.cluster import ClusterVerbs
from headrace.console.verbs.verb import Verb
from headrace.figures.cluster import RecordPlace
from samples.bank import app

TEMPLATES = Path(headrace.console.__file__).parent / "templates"


def commands() -> set[str]:
    """Every command of the command line with two words."""
    group = typer.main.get_command(_command_line())
    return {
        f"{name} {part}"
        for name, command in getattr(group, "commands", {}).items()
        for part in getattr(command, "commands", {})
    }


def all_verbs() -> dict[str, Verb]:
    """Those of a console with an application and a group of brokers."""
    of_an_application = ApplicationVerbs(app, event_store="memory://", read_models="memory://")
    return {**VERBS, **of_an_application.verbs, **ClusterVerbs(RecordPlace("")).verbs}


def test_each_verb_is_a_command_of_the_same_name() -> None:
    assert sorted(all_verbs().keys() - commands()) == []


def test_each_change_has_a_form_and_each_form_a_change() -> None:
    forms = {
        found.replace("/", " ")
        for page in TEMPLATES.glob("*.html")
        for found in re.findall(r'action="/do/([a-z-]+/[a-z-]+)"', page.read_text(encoding="utf-8"))
    }
    assert forms == {name for name, verb in all_verbs().items() if verb.changes}


def test_each_verb_has_an_address_in_the_api() -> None:
    found = all_verbs()
    assert [one["name"] for one in described(found)] == list(found)
    for verb in found.values():
        assert verb_at(found, *verb.path.split("/")) is verb


def test_a_verb_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(Mistake, match="no verb topic burn; /api lists all"):
        verb_at(VERBS, "topic", "burn")
