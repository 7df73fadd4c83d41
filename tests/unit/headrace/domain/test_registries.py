"""The registries of an application know what its parts name, and refuse what cannot be."""

import pytest

from headrace.domain.message import AggregateId, ApplicationMessage, Command, DomainEvent
from headrace.domain.registries import bind_named, find_named, registries
from headrace.errors import DefinitionError, ProjectionNotFound


class Open(Command, version=2):
    account_id: AggregateId


class Opened(DomainEvent, version=2):
    owner: str


class Told(ApplicationMessage, version=2):
    text: str


def known(**changes):
    parts = {"commands": [Open], "events": [Opened], "messages": [Told]}
    upcasters = [(each, 1, dict) for each in (Open, Opened, Told)]
    return registries("shop", **(parts | {"upcasters": upcasters} | changes))


def test_every_message_is_known_to_the_registry_of_its_kind() -> None:
    commands, events, messages = known()
    assert (set(commands), set(events), set(messages)) == ({Open}, {Opened}, {Told})
    assert events.resolve("Opened", 1, {"owner": "ann"}) == (Opened, {"owner": "ann"})


def test_an_upcaster_of_an_unused_message_is_refused() -> None:
    for kind, message_type in (("commands", Open), ("events", Opened), ("messages", Told)):
        with pytest.raises(DefinitionError, match=f"upcaster of {message_type.__name__} version 1"):
            known(**{kind: []})


def test_a_version_of_an_event_that_could_not_be_read_is_refused() -> None:
    with pytest.raises(DefinitionError, match="Opened"):
        known(upcasters=[])


def test_a_name_is_bound_once() -> None:
    table: dict[str, object] = {}
    part = object()
    bind_named(table, "a", part, "parts")
    bind_named(table, "a", part, "parts")
    with pytest.raises(DefinitionError, match="two parts are named 'a'"):
        bind_named(table, "a", object(), "parts")
    assert find_named(table, "a", "no part", ProjectionNotFound) is part


@pytest.mark.parametrize(("table", "known"), [({}, "none"), ({"b": 1, "a": 2}, "a, b")])
def test_an_error_about_an_unknown_name_lists_the_known_ones(
    table: dict[str, int], known: str
) -> None:
    with pytest.raises(ProjectionNotFound, match=f"no part 'c'; it has: {known}"):
        find_named(table, "c", "no part", ProjectionNotFound)
