"""What stands around handlers: order, refusals, and what it may not do."""

import asyncio

import pytest

from headrace.commands.command_handlers import CommandContext
from headrace.commands.middleware import Next, around, check_middleware
from headrace.errors import DefinitionError, DomainError


class NotAllowed(DomainError):
    pass


def surround(world, *middleware) -> None:
    """Puts middleware around every handler of the world."""
    for command_type, handler in list(world.handlers._handlers.items()):
        world.handlers._handlers[command_type] = around(handler, middleware)


async def test_middleware_runs_in_the_order_of_registration_around_the_handler(world, bank):
    seen = []

    def named(name):
        async def middleware(context: CommandContext, call_next: Next) -> None:
            seen.append(f"{name} before {type(context.command).__name__}")
            await call_next()
            seen.append(f"{name} after")

        return middleware

    surround(world, named("outer"), named("inner"))
    world.start()
    result = await world.bus.execute(bank.Open(account_id="a-1"))
    assert (result.status, result.version) == ("executed", 1)
    assert seen == ["outer before Open", "inner before Open", "inner after", "outer after"]


async def test_middleware_sees_what_came_with_the_command(world, bank):
    seen = []

    async def middleware(context: CommandContext, call_next: Next) -> None:
        seen.append((context.command_id, context.correlation_id, dict(context.items)))
        await call_next()

    surround(world, middleware)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"), command_id="c", items={"user": "u"})
    assert seen == [("c", "c", {"user": "u"})]


async def test_a_refusal_of_middleware_is_a_rejection_like_any_other(world, bank):
    async def members_only(context: CommandContext, call_next: Next) -> None:
        if "member" not in context.items:
            raise NotAllowed("members only")
        await call_next()

    surround(world, members_only)
    world.start()
    refused = await world.bus.execute(bank.Open(account_id="a-1"), command_id="c-1")
    assert (refused.status, refused.error, refused.sentence) == (
        "rejected",
        "NotAllowed",
        "members only",
    )
    # A duplicate is answered by what is stored, whoever sends it.
    again = await world.bus.execute(
        bank.Open(account_id="a-1"), command_id="c-1", items={"member": "yes"}
    )
    assert again == refused
    assert (await world.bus.execute(bank.Open(account_id="a-1"), items={"member": "yes"})).ok
    await world.check("a-1")


async def test_a_refusal_after_the_handler_leaves_no_trace_of_it(world, bank):
    async def limit(context: CommandContext, call_next: Next) -> None:
        await call_next()
        if getattr(context.command, "amount", 0) > 10:
            raise NotAllowed("too much")

    surround(world, limit)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    calls = [bank.Deposit(account_id="a-1", amount=amount) for amount in (5, 50, 5)]
    results = await asyncio.gather(*map(world.bus.execute, calls))
    assert [each.status for each in results] == ["executed", "rejected", "executed"]
    assert results[2].value == {"balance": 10}
    await world.check("a-1")


async def test_without_next_the_handler_does_not_run(world, bank):
    async def swallow(context: CommandContext, call_next: Next) -> None:
        context.set_result("swallowed")

    surround(world, swallow)
    world.start()
    result = await world.bus.execute(bank.Open(account_id="a-1"))
    assert (result.status, result.value) == ("unchanged", "swallowed")
    (stream,) = await world.stored("a-1")
    assert (stream.unchanged, stream.seen_version) == (True, None)


async def test_a_handler_never_runs_twice_in_one_run(world, bank):
    async def twice(context: CommandContext, call_next: Next) -> None:
        await call_next()
        await call_next()

    world.settings = world.settings.model_copy(update={"error_retries_max": 0})
    surround(world, twice)
    world.start()
    result = await world.bus.execute(bank.Open(account_id="a-1"))
    assert (result.status, result.error) == ("failed", "RuntimeError")
    assert "called call_next twice" in result.sentence
    assert await world.stored("a-1") == []


async def test_after_a_conflict_middleware_runs_again_with_the_handler(world, bank):
    runs = []

    async def count(context: CommandContext, call_next: Next) -> None:
        runs.append(type(context.command).__name__)
        await call_next()

    surround(world, count)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=1, balance=1), command_id="foreign")
    )
    result = await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert result.value == {"balance": 2}
    assert runs == ["Open", "Deposit", "Deposit"]


def test_without_middleware_a_handler_is_left_as_it_is():
    async def handler(command: object, context: CommandContext) -> None:
        pass

    assert around(handler, []) is handler


def test_middleware_of_another_form_is_refused():
    def blocking(context: CommandContext, call_next: Next) -> None:
        pass

    async def alone(context: CommandContext) -> None:
        pass

    for function in (blocking, alone):
        with pytest.raises(DefinitionError, match="write it as `async def f"):
            check_middleware(function)
