"""Results of commands and their form on the way back."""

import pytest

from headrace.errors import DomainError, HeadraceError
from headrace.results import CommandResult, decode_reply, encode_reply


def test_a_reply_brings_its_result():
    result = CommandResult(
        status="rejected", aggregate_id="a", command_id="c", error="e", sentence="s", place=(1, 2)
    )
    found = decode_reply(encode_reply(result))
    assert (found, found.place) == (result, (1, 2))


def test_a_reply_holds_a_stored_value_as_it_is_stored():
    result = CommandResult(status="executed", aggregate_id="a", command_id="c", version=1)
    assert b'"value":{"balance":5}' in encode_reply(result, value_json='{"balance":5}')
    assert b'"value":null' in encode_reply(result)


@pytest.mark.parametrize(
    ("status", "ok"),
    [("executed", True), ("unchanged", True), ("rejected", False), ("failed", False)],
)
def test_a_result_is_ok_when_the_command_had_its_way(status, ok):
    assert CommandResult(status=status, aggregate_id="a", command_id="c").ok is ok


def test_raise_for_rejection_raises_what_stood_in_the_way():
    def result(status):
        return CommandResult(
            status=status, aggregate_id="a", command_id="c", error="overdrawn", sentence="no money"
        )

    result("executed").raise_for_rejection()
    result("unchanged").raise_for_rejection()
    with pytest.raises(DomainError, match="no money") as caught:
        result("rejected").raise_for_rejection()
    assert caught.value.code == "overdrawn"
    with pytest.raises(HeadraceError, match="command c failed: no money") as failed:
        result("failed").raise_for_rejection()
    assert not isinstance(failed.value, DomainError)


def test_the_place_of_a_result_is_no_part_of_its_equality():
    one = CommandResult(status="executed", aggregate_id="a", command_id="c", place=(0, 1))
    other = CommandResult(status="executed", aggregate_id="a", command_id="c", place=(0, 9))
    assert one == other
