"""The mailbox alone: order, one run at a time, rewinds; and at work: one append for what waits."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.commands.mailbox import Mailbox


@dataclass(eq=False)
class Item:
    command_id: str


def mailbox_with(*command_ids: str) -> tuple[Mailbox[Item], list[Item]]:
    mailbox: Mailbox[Item] = Mailbox()
    items = [Item(command_id) for command_id in command_ids]
    for item in items:
        assert mailbox.offer(item) is None
    return mailbox, items


def test_commands_are_taken_in_the_order_in_which_they_were_offered():
    mailbox, items = mailbox_with("a", "b", "c")
    taken = []
    while (item := mailbox.take()) is not None:
        taken.append(item)
        assert mailbox.ran()
    assert taken == items


def test_an_empty_mailbox_has_nothing_to_take_or_settle():
    mailbox, _ = mailbox_with()
    assert mailbox.take() is None
    assert mailbox.oldest is None
    with pytest.raises(ValueError, match="settled"):
        mailbox.settle()
    with pytest.raises(ValueError, match="running"):
        mailbox.ran()


def test_one_command_runs_at_a_time():
    mailbox, (first, second) = mailbox_with("a", "b")
    assert mailbox.take() is first
    assert mailbox.take() is None
    mailbox.ran()
    assert mailbox.take() is second


def test_a_running_command_is_not_decided():
    mailbox, (first,) = mailbox_with("a")
    mailbox.take()
    assert (mailbox.decided, mailbox.oldest) == (0, None)
    mailbox.ran()
    assert (mailbox.decided, mailbox.oldest) == (1, first)


def test_an_unsettled_command_of_the_same_id_is_returned_and_nothing_is_added():
    mailbox, (first,) = mailbox_with("a")
    assert mailbox.offer(Item("a")) is first
    assert len(mailbox) == 1


def test_after_it_is_settled_an_id_may_come_again():
    mailbox, _ = mailbox_with("a")
    mailbox.take()
    mailbox.ran()
    mailbox.settle()
    assert mailbox.offer(Item("a")) is None


def test_a_rewind_gives_the_command_and_all_later_ones_again_in_order():
    mailbox, items = mailbox_with("a", "b", "c", "d")
    for _ in range(3):
        mailbox.take()
        mailbox.ran()
    assert mailbox.rewind(items[1]) == 1
    assert (mailbox.generation, mailbox.decided, mailbox.oldest) == (1, 1, items[0])
    again = []
    while (item := mailbox.take()) is not None:
        again.append(item)
        mailbox.ran()
    assert again == items[1:]


def test_a_run_that_a_rewind_overtook_counts_no_more_and_comes_again_in_its_turn():
    mailbox, (first, second) = mailbox_with("a", "b")
    mailbox.take()
    mailbox.ran()
    mailbox.take()
    assert mailbox.counts
    mailbox.rewind(first)
    assert not mailbox.counts
    assert mailbox.take() is None
    assert mailbox.ran() is False
    assert mailbox.take() is first
    assert mailbox.ran() is True
    assert mailbox.take() is second
    assert mailbox.ran() is True


def test_only_a_decided_command_can_be_rewound_to():
    mailbox, (first, second) = mailbox_with("a", "b")
    mailbox.take()
    with pytest.raises(ValueError, match="decided"):
        mailbox.rewind(first)
    mailbox.ran()
    with pytest.raises(ValueError, match="decided"):
        mailbox.rewind(second)


@given(st.lists(st.tuples(st.sampled_from("otrsw"), st.integers(0, 5)), max_size=200))
def test_whatever_happens_commands_are_settled_once_each_in_the_order_of_offers(steps):
    mailbox: Mailbox[Item] = Mailbox()
    offered: list[Item] = []
    settled: list[Item] = []
    decided: list[Item] = []  # what the model says is decided and not settled
    running: Item | None = None
    counts = False
    for step, number in steps:
        if step == "o":
            item = Item(str(len(offered)))
            offered.append(item)
            assert mailbox.offer(item) is None
        elif step == "t":
            expected = len(settled) + len(decided)
            taken = mailbox.take()
            if running is not None or expected == len(offered):
                assert taken is None
            else:
                assert taken is offered[expected]
                running, counts = taken, True
        elif step == "r" and running is not None:
            assert mailbox.ran() is counts
            if counts:
                decided.append(running)
            running = None
        elif step == "s" and decided:
            assert mailbox.oldest is decided[0]
            settled.append(mailbox.settle())
            decided.pop(0)
        elif step == "w" and decided:
            place = number % len(decided)
            generation = mailbox.generation
            assert mailbox.rewind(decided[place]) == generation + 1
            del decided[place:]
            counts = False
        assert mailbox.decided == len(decided)
        assert len(mailbox) == len(offered) - len(settled)
    assert settled == offered[: len(settled)]


async def test_what_waits_in_one_mailbox_is_appended_together(world, bank):
    commands = [bank.Open(account_id="a-1")]
    commands += [bank.Deposit(account_id="a-1", amount=1) for _ in range(63)]
    calls = [asyncio.create_task(world.bus.execute(command)) for command in commands]
    await world.settle()
    world.start()
    results = await asyncio.gather(*calls)
    assert [result.version for result in results] == list(range(1, 65))
    assert [len(batch) for batch in world.store.appends] == [64]
    await world.stop()
    await world.check("a-1")
