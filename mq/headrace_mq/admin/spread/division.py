"""
Spreads a topic over broker groups: gives each group queues of it, and tells every group how many there are in all.

    no group has it, 8 queues        g1: 0-3          g2: 4-7
    g1 has 4 queues, now 8           g1: 0-3          g2: 4-7
    both have 4, now 12              g1: 0-3, 8-9     g2: 4-7, 10-11

No message moves: a queue stays in its group. New queues go to the groups that have none, or else to all of them. A group
that gets queues hears of it before those that get none. While several get some, messages for queues of the later ones wait.

Used by the command line and by your programs.
"""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from headrace_mq._net.address import BrokerAddress
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.spread.topic_map import TopicMap
from headrace_mq.errors import InvalidArgument, TopicExists, TopicNotFound
from headrace_mq.message import QUEUES_PER_TOPIC_MAX
from headrace_mq.protocol.bodies import TopicDescription

__all__ = ["divided", "spread_topic"]


def divided(
    said: Mapping[str, TopicDescription | None], topic: str, queues: int, *, resume: bool = False
) -> dict[str, list[int]]:
    """Returns which queues each group has afterwards. PURE.

    Args:
        said: what each group says of the topic, by its name; None: it does not have it.
        topic: its name.
        queues: how many there shall be, over all groups.
        resume: queues that no group has go to the groups without queues, or else to those that have not heard of them: a
            call before was interrupted.

    Raises:
        InvalidArgument: fewer queues than there are, or than groups need; or queues are missing.
        TopicExists: two groups have the same queue.
    """
    known = TopicMap(list(said))
    for group, each in said.items():
        known.hear(group, [topic], [] if each is None else [each])
    merged = known.merged(topic)
    before = 0 if merged is None else merged.queues
    if not max(before, 1) <= queues <= QUEUES_PER_TOPIC_MAX:
        raise InvalidArgument(
            f"topic {topic!r} has {before} queues over its groups; it can have {max(before, 1)} to"
            f" {QUEUES_PER_TOPIC_MAX}, not {queues}"
        )
    missing = known.unowned(topic)
    if missing and not resume:
        raise InvalidArgument(
            f"queue {topic}/{missing[0]} is in none of the groups {', '.join(said)}: name all groups of the topic in the"
            " address. If the topic was never spread over more groups, an earlier call was interrupted: repeat it with"
            " --resume"
        )
    owned: dict[str, list[int]] = {
        group: [] if each is None else list(each.owned or range(each.queues))
        for group, each in said.items()
    }
    takers = [group for group, mine in owned.items() if not mine] or list(owned)
    new = list(range(before, queues))
    if new and len(new) < len(takers):
        raise InvalidArgument(
            f"{len(new)} new queues are too few for the {len(takers)} groups {', '.join(takers)}: ask for more queues, or"
            " name fewer groups"
        )
    _share_out(new, takers, _share_out(missing, _open_to(missing, said, takers, topic), owned))
    return {group: sorted(mine) for group, mine in owned.items() if mine}


def _open_to(
    missing: Sequence[int],
    said: Mapping[str, TopicDescription | None],
    takers: Sequence[str],
    topic: str,
) -> list[str]:
    """The groups that may take queues that no group has: one that knows of a queue, and lacks it, never gets it."""
    if not missing:
        return []
    totals = {group: 0 if each is None else each.queues for group, each in said.items()}
    found = [group for group in takers if totals[group] <= missing[0]] or [
        group for group, total in totals.items() if total <= missing[0]
    ]
    if not found:
        raise InvalidArgument(
            f"queue {topic}/{missing[0]} is in none of the groups {', '.join(said)}, and each of them takes it for"
            " another's: name the group that has it, too; if that group lost its disk, restore its backup"
        )
    return found[: len(missing)]


def _share_out(
    numbers: Sequence[int], takers: Sequence[str], owned: dict[str, list[int]]
) -> dict[str, list[int]]:
    for place, group in enumerate(takers):
        first, end = (len(numbers) * each // len(takers) for each in (place, place + 1))
        owned[group] += numbers[first:end]
    return owned


async def spread_topic(
    address: str, topic: str, queues: int, *, retention: str = "", resume: bool = False
) -> dict[str, list[int]]:
    """Spreads a topic over the groups that an address names; durable. Returns which queues each of them has.

    It may be repeated; where it was interrupted, with `resume`. Clients that name all groups find new queues within seconds;
    with more queues, a key may belong to another queue than before (`AdminClient.add_queues`).

    Args:
        address: `nameserver://HOST:9875/CLUSTER/g1,g2`; each group must answer.
        topic: its name.
        queues: how many there shall be, over all groups.
        retention: of a new topic; empty: "transient".
        resume: queues that no group has are given to groups, as the call that was interrupted would have done.

    Raises:
        ValueError: the address names one group, or none.
        InvalidArgument: the number of queues cannot be, or a queue would have to change its group.
        TopicExists: the groups have topics of this name that are not one; or the topic has another retention.
        ConnectionLost, RequestTimeout: a group does not answer; repeat the call.
    """
    parsed = BrokerAddress.parse(address)
    if len(parsed.groups) < 2:
        raise ValueError(
            "name the groups that shall have the topic, with the one that has it now first, as in"
            " nameserver://HOST:9875/CLUSTER/g1,g2"
        )
    async with AsyncExitStack() as stack:
        admins = {
            group: await stack.enter_async_context(AdminClient(str(one)))
            for group, one in parsed.of_each_group().items()
        }
        said = {group: await _described(admin, topic) for group, admin in admins.items()}
        plan = divided(said, topic, queues, resume=resume)
        identity = await _identity(admins, topic, said)
        kinds = {each.retention for each in said.values() if each is not None}
        kept = next(iter(kinds), retention or "transient")
        if retention not in {"", kept}:
            raise TopicExists(f"topic {topic!r} is kept {kept}, which cannot change")
        for group in _in_order(said, plan):
            await admins[group].own_queues(topic, queues, kept, plan[group], identity)
    return plan


def _in_order(
    said: Mapping[str, TopicDescription | None], plan: Mapping[str, Sequence[int]]
) -> list[str]:
    """First the groups that get most: until the others hear of it, clients see none of the new queues there."""

    def gets(group: str) -> int:
        each = said[group]
        return len(plan[group]) - (0 if each is None else len(each.owned or range(each.queues)))

    return sorted(plan, key=gets, reverse=True)


async def _described(admin: AdminClient, topic: str) -> TopicDescription | None:
    try:
        return await admin.topic(topic)
    except TopicNotFound:
        return None


async def _identity(
    admins: Mapping[str, AdminClient],
    topic: str,
    said: Mapping[str, TopicDescription | None],
) -> str:
    found = {
        (await admins[group].lineage(topic))[0] for group, each in said.items() if each is not None
    }
    if len(found) > 1:
        raise TopicExists(
            f"the broker groups have topics {topic!r} that were made apart from each other: use another name, or delete it"
            " in one of them"
        )
    return next(iter(found), "") or str(uuid.uuid4())
