"""Results of commands and their form on the way back."""

import asyncio
import warnings

import pytest

from headrace.app import App
from headrace.commands.command_handlers import CommandContext
from headrace.domain.message import AggregateId, Command
from headrace.errors import DomainError, HeadraceError
from headrace.results import CommandResult, WatchedResult, decode_reply, encode_reply


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


def rejected() -> CommandResult:
    return CommandResult(
        status="rejected", aggregate_id="a", command_id="c", error="Overdrawn", sentence="no money"
    )


def test_a_result_that_nothing_looks_at_names_the_command_and_the_line():
    watched = [WatchedResult.of(rejected(), "Withdraw", depth=1)]
    with pytest.warns(RuntimeWarning, match=r"Withdraw was rejected \(no money\).*`ok`") as told:
        watched.clear()
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    "look",
    [
        lambda result: result.ok,
        lambda result: result.status,
        lambda result: result == rejected(),
        lambda result: rejected() == result,
        repr,
    ],
)
def test_a_result_that_was_looked_at_is_silent_and_like_any_other(look):
    watched = [WatchedResult.of(rejected(), "Withdraw", depth=1)]
    assert look(watched[0]) == look(rejected())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watched.clear()


class Deposit(Command):
    account_id: AggregateId


@pytest.mark.parametrize(("debug", "count"), [(True, 1), (False, 0)])
async def test_a_rejection_that_nothing_looks_at_is_warned_of_in_debug_mode(
    recwarn: pytest.WarningsRecorder, debug: bool, count: int
) -> None:
    app = App("bank")

    @app.handles
    async def deposit(command: Deposit, context: CommandContext) -> None:
        raise DomainError("no")

    async with app.run_local() as bank:
        asyncio.get_running_loop().set_debug(debug)
        try:
            await bank.bus.execute(Deposit(account_id="a"))
        finally:
            asyncio.get_running_loop().set_debug(False)
    told = [str(each.message) for each in recwarn if each.filename == __file__]
    assert len(told) == count
    assert all("Deposit was rejected (no)" in each for each in told)
