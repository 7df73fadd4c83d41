"""Commands by name and version, as clients call them."""

import pytest

from headrace.domain.message import AggregateId, Command
from headrace.gateway.catalogue import Catalogue
from headrace.gateway.problems import Problem


class Ship(Command, version=1):
    order_id: AggregateId


class ShipNow(Command, name="Ship", version=3):
    order_id: AggregateId
    carrier: str


class Cancel(Command):
    order_id: AggregateId


class Settle(Command, internal=True):
    order_id: AggregateId


CATALOGUE = Catalogue([ShipNow, Cancel, Ship, Settle])


def test_clients_cannot_send_an_internal_command() -> None:
    assert list(CATALOGUE.names) == ["Cancel", "Ship"]
    with pytest.raises(Problem, match="there is no command 'Settle'"):
        CATALOGUE.find("Settle", None)


def test_a_command_without_a_version_is_of_the_highest_one() -> None:
    assert CATALOGUE.find("Ship", None) is ShipNow
    assert CATALOGUE.find("Ship", 1) is Ship


def test_an_unknown_name_lists_close_ones() -> None:
    with pytest.raises(Problem, match="did you mean Cancel") as caught:
        CATALOGUE.find("Cancle", None)
    assert (caught.value.status, caught.value.body["close_matches"]) == (404, ["Cancel"])


def test_an_unknown_version_lists_those_there_are() -> None:
    with pytest.raises(Problem, match="it has: 1, 3") as caught:
        CATALOGUE.find("Ship", 2)
    assert caught.value.status == 422


def test_a_name_as_long_as_a_request_costs_no_search() -> None:
    with pytest.raises(Problem) as caught:
        CATALOGUE.find("Ship" * 10_000, None)
    assert caught.value.body["close_matches"] == []
    assert len(caught.value.body["detail"]) < 300


def test_names_and_versions_are_in_order() -> None:
    assert [(name, list(versions)) for name, versions in CATALOGUE.names.items()] == [
        ("Cancel", [1]),
        ("Ship", [1, 3]),
    ]
