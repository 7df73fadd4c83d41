"""The handler table, and what a handler may do with its context."""

import pytest

from headrace.access.principal import Principal
from headrace.commands.command_handlers import CommandContext, HandlerRun, HandlerTable
from headrace.domain.message import AggregateId, Command
from headrace.errors import (
    AggregateExists,
    AggregateNotFound,
    DefinitionError,
    SerializationError,
)
from headrace.serialization import CommandEnvelope


class Touch(Command):
    thing_id: AggregateId


class TouchSoftly(Touch):
    pass


async def touch(command: Touch, context: CommandContext) -> None:
    """Handles exactly Touch."""


async def touch_softly(command: TouchSoftly, context: CommandContext) -> None:
    """Handles exactly TouchSoftly."""


def test_a_handler_is_found_by_the_exact_type_of_its_command():
    table = HandlerTable()
    assert table.add(touch) is touch
    table.add(touch_softly)
    assert table.by_type == {Touch: touch, TouchSoftly: touch_softly}


def test_a_child_of_a_handled_command_has_no_handler_by_inheritance():
    table = HandlerTable()
    table.add(touch)
    assert TouchSoftly not in table.by_type


def test_two_handlers_for_one_command_are_refused_and_the_same_one_twice_is_not():
    async def touch_again(command: Touch, context: CommandContext) -> None:
        """Another one."""

    table = HandlerTable()
    table.add(touch)
    table.add(touch)
    with pytest.raises(DefinitionError, match=r"two handlers: touch and .*touch_again; remove one"):
        table.add(touch_again)


def not_async(command: Touch, context: CommandContext) -> None:
    """Misses async."""


async def one_argument(command: Touch) -> None:
    """Misses the context."""


async def no_annotation(command, context: CommandContext) -> None:
    """Misses its command type."""


async def no_command(command: int, context: CommandContext) -> None:
    """Handles a number."""


async def other_context(command: Touch, context: int) -> None:
    """Takes something else."""


async def unknown_name(command: "Nowhere", context: CommandContext) -> None:  # noqa: F821 - on purpose
    """Names a class that does not exist."""


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (not_async, "not an async function"),
        (one_argument, "takes 1 arguments"),
        (no_annotation, "not annotated with a Command"),
        (no_command, "not annotated with a Command"),
        (other_context, "is not a CommandContext"),
        (unknown_name, "Nowhere"),
    ],
)
def test_a_function_of_another_form_is_refused_with_what_to_write(function, sentence):
    with pytest.raises(DefinitionError, match=sentence) as caught:
        HandlerTable().add(function)
    assert "async def f(command: SomeCommand, context: CommandContext)" in str(caught.value)


class FakeLoader:
    """Holds what a worker would."""

    def __init__(self, accepted=None, stored=None):
        self.accepted = accepted
        self.stored = stored
        self.loads = 0

    async def load(self, aggregate_type):
        self.loads += 1
        self.accepted = self.stored
        return self.stored


def context_of(command, loader) -> tuple[CommandContext, HandlerRun]:
    envelope = CommandEnvelope(
        command=command, command_id="c-1", correlation_id="c-0", items={"trace": "t"}
    )
    run = HandlerRun()
    return CommandContext(envelope, loader, run), run


async def used(context_and_run, use):
    """Runs as a handler would, inside the run's deadline."""
    context, run = context_and_run
    await run.deadline.run(use(context))


async def test_the_context_tells_the_commands_ids_and_items(bank):
    context, _ = context_of(bank.Deposit(account_id="a-1", amount=1), FakeLoader())
    assert (context.command_id, context.correlation_id) == ("c-1", "c-0")
    assert context.items == {"trace": "t"}


async def test_get_returns_the_accepted_aggregate_without_loading(bank):
    account = bank.Account.open("a-1", "Ann")
    account.accept()
    loader = FakeLoader(accepted=account)

    async def use(context):
        assert await context.get(bank.Account, "a-1") is account
        assert await context.get(bank.Account, "a-1") is account

    await used(context_of(bank.Look(account_id="a-1"), loader), use)
    assert loader.loads == 0


async def test_get_loads_what_is_not_in_memory(bank):
    account = bank.Account.open("a-1", "Ann")
    account.accept()
    loader = FakeLoader(stored=account)

    async def use(context):
        assert await context.get(bank.Account, "a-1") is account

    await used(context_of(bank.Look(account_id="a-1"), loader), use)
    assert loader.loads == 1


async def test_get_of_what_has_no_events_or_another_class_finds_nothing(bank):
    class Savings(bank.Account):
        pass

    async def use(context):
        with pytest.raises(AggregateNotFound, match="there is no Account 'a-1'"):
            await context.get(bank.Account, "a-1")

    await used(context_of(bank.Look(account_id="a-1"), FakeLoader()), use)
    await used(context_of(bank.Look(account_id="a-1"), FakeLoader(accepted=Savings("a-1"))), use)


async def test_get_after_add_returns_what_was_added(bank):
    added = bank.Account.open("a-1", "Ann")

    async def use(context):
        context.add(added)
        assert await context.get(bank.Account, "a-1") is added

    await used(context_of(bank.Open(account_id="a-1"), FakeLoader()), use)


async def test_add_after_a_get_that_found_nothing_is_fine(bank):
    context_and_run = context_of(bank.Open(account_id="a-1"), FakeLoader())
    added = bank.Account.open("a-1", "Ann")

    async def use(context):
        with pytest.raises(AggregateNotFound):
            await context.get(bank.Account, "a-1")
        context.add(added)
        context.add(added)

    await used(context_and_run, use)
    _, run = context_and_run
    assert (run.aggregate, run.added, run.misuse) == (added, True, "")


async def test_get_or_add_makes_an_aggregate_only_where_there_is_none(bank):
    stored = bank.Account.open("a-1", "Ann")
    stored.accept()
    made = bank.Account.open("a-1", "Bob")

    async def use(context):
        assert await context.get_or_add(bank.Account, "a-1", lambda: made) is expected
        assert await context.get_or_add(bank.Account, "a-1", lambda: None) is expected

    for loader, expected in ((FakeLoader(stored=stored), stored), (FakeLoader(), made)):
        context_and_run = context_of(bank.Look(account_id="a-1"), loader)
        await used(context_and_run, use)
        _, run = context_and_run
        assert (run.aggregate, run.added, run.misuse) == (expected, expected is made, "")


async def test_add_of_an_id_that_get_has_returned_is_rejected(bank):
    account = bank.Account.open("a-1", "Ann")
    account.accept()
    context, run = context_of(bank.Open(account_id="a-1"), FakeLoader(accepted=account))
    await context.get(bank.Account, "a-1")
    with pytest.raises(AggregateExists, match="'a-1' exists already"):
        context.add(bank.Account.open("a-1", "Bob"))
    assert run.misuse == ""


async def test_touching_another_aggregate_is_noted_even_when_the_handler_hides_it(bank):
    context, run = context_of(bank.Look(account_id="a-1"), FakeLoader())
    with pytest.raises(ValueError, match=r"Look is for aggregate 'a-1'.*touched 'a-2'"):
        await context.get(bank.Account, "a-2")
    assert "touched 'a-2'" in run.misuse
    context, run = context_of(bank.Open(account_id="a-1"), FakeLoader())
    with pytest.raises(ValueError, match="touched 'a-2'"):
        context.add(bank.Account.open("a-2", "Ann"))
    assert "touched 'a-2'" in run.misuse


async def test_adding_what_is_not_new_or_two_of_them_is_noted(bank):
    old = bank.Account.open("a-1", "Ann")
    old.accept()
    context, run = context_of(bank.Look(account_id="a-1"), FakeLoader(accepted=old))
    with pytest.raises(ValueError, match="is not new"):
        context.add(old)
    context, run = context_of(bank.Open(account_id="a-1"), FakeLoader())
    context.add(bank.Account.open("a-1", "Ann"))
    with pytest.raises(ValueError, match="added already"):
        context.add(bank.Account.open("a-1", "Bob"))
    assert "added already" in run.misuse


async def test_a_result_is_kept_as_json_and_one_without_json_form_is_noted(bank):
    context, run = context_of(bank.Look(account_id="a-1"), FakeLoader())
    context.set_result({"balance": 5})
    assert run.result == '{"balance":5}'
    with pytest.raises(SerializationError):
        context.set_result(object())
    assert "JSON" in run.misuse


async def test_the_context_shows_who_sent_the_command(bank):
    ann = Principal("ann", frozenset({"clerk"}))
    command = bank.Deposit(account_id="a-1", amount=1)
    sent = CommandEnvelope(command=command, command_id="c", correlation_id="c", principal=ann)
    assert CommandContext(sent, FakeLoader(), HandlerRun()).principal is ann
    assert context_of(command, FakeLoader())[0].principal is None
