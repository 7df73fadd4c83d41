"""The console, its JSON and the command line have the same verbs."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer.main

import headrace.console
from headrace.alarms.settings import AlarmSettings
from headrace.cli import _command_line
from headrace.console.problems import Mistake
from headrace.console.verbs.alarm import AlarmVerbs
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


def alarms() -> Mapping[str, Verb]:
    """The verbs about alarms."""
    target = {"url": "http://127.0.0.1:1/metrics"}
    return AlarmVerbs(AlarmSettings.model_validate({"target": [target]})).verbs


def services() -> Mapping[str, Verb]:
    """The verbs about processes of an application that a file of alarms names."""
    target = {"job": "headrace-run", "url": "http://127.0.0.1:1/metrics"}
    return AlarmVerbs(AlarmSettings.model_validate({"target": [target]})).services


def all_verbs() -> dict[str, Verb]:
    """Those of a console with an application and a group of brokers."""
    of_an_application = ApplicationVerbs(app, event_store="memory://", read_models="memory://")
    return {**VERBS, **of_an_application.verbs, **ClusterVerbs(RecordPlace("")).verbs}


def test_each_verb_is_a_command_of_the_same_name() -> None:
    assert sorted(all_verbs().keys() - commands()) == []
    assert services().keys() <= commands()


def test_alarms_have_the_same_verbs_in_the_console_and_on_the_command_line() -> None:
    of_alarms = {name for name in commands() if name.startswith("alarms ")}
    # One watches for as long as it runs, the other writes a file.
    assert alarms().keys() == of_alarms - {"alarms watch", "alarms prometheus"}


@pytest.mark.parametrize(("noun", "terminal"), [("user", {"password", "key"}), ("acl", set())])
def test_users_and_rules_have_the_verbs_of_the_command_line(noun: str, terminal: set[str]) -> None:
    of_commands = {name for name in commands() if name.startswith(f"{noun} ")}
    left = {name for name in VERBS if name.startswith(f"{noun} ")}
    assert left == of_commands - {f"{noun} {each}" for each in terminal}


def test_each_change_has_a_form_and_each_form_a_change() -> None:
    forms = {
        found.replace("/", " ")
        for page in TEMPLATES.glob("*.html")
        for found in re.findall(r'action="/do/([a-z-]+/[a-z-]+)"', page.read_text(encoding="utf-8"))
    }
    verbs = {**all_verbs(), **alarms()}
    assert forms == {name for name, verb in verbs.items() if verb.changes}


def test_each_verb_has_an_address_in_the_api() -> None:
    found = all_verbs()
    assert [one["name"] for one in described(found)] == list(found)
    for verb in found.values():
        assert verb_at(found, *verb.path.split("/")) is verb


def test_a_verb_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(Mistake, match="no verb topic burn; /api lists all"):
        verb_at(VERBS, "topic", "burn")
