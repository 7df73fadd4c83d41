"""Which commands are a client's own: their ids begin with its name."""

import pytest
from starlette.requests import Request

from headrace.access.principal import Principal
from headrace.gateway.access.caller import Caller, admit, caller_of
from headrace.gateway.problems import Problem

ANN = Caller(Principal("ann"))


@pytest.mark.parametrize(
    ("key", "command_id"),
    [("k", "ann:k"), ("ann:k", "ann:k"), ("bob:k", "ann:bob:k"), ("annika:k", "ann:annika:k")],
)
def test_a_key_becomes_an_id_of_the_clients_own(key: str, command_id: str) -> None:
    assert ANN.command_id(key) == command_id
    assert ANN.command_id(command_id) == command_id


def test_a_gateway_that_does_not_ask_takes_a_key_as_it_is() -> None:
    assert Caller().command_id("bob:k") == "bob:k"


def test_a_key_that_has_no_room_for_the_name_is_400_with_the_room_there_is() -> None:
    assert len(ANN.command_id("x" * 251)) == 255
    with pytest.raises(Problem, match="yours may have 251") as refused:
        ANN.command_id("x" * 252)
    assert (refused.value.status, refused.value.kind) == (400, "idempotency-key")


async def test_a_request_has_the_admission_that_was_noted_in_it() -> None:
    scope = {"type": "http"}
    assert caller_of(Request(scope)).principal is None
    assert await caller_of(Request(scope)).still_valid()
    admit(scope, ANN)
    assert caller_of(Request(scope)) is ANN
