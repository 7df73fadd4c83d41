"""
What a person can do and see in the console: a line for each verb of its catalogue.

    ACTIONS   the button, its fields, what the question says, what a public client finds afterwards, and who is refused
    SHOWN     the page that shows a verb's answer, and a text on it

The order is that of the tests: each action finds what those before it left.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.integration.console.tea_shop import SPILLED
from tests.integration.console.world import World

Look = Callable[[World], Awaitable[Any]]


class Action(NamedTuple):
    """One thing to do.

    Attributes:
        verb: its name.
        page: where its button is.
        asked: a piece of what the question says.
        look: what a public client finds.
        becomes: what it finds once that is done.
        denied: a piece of the sentence for a user who may see everything and change nothing.
        fill: fields of the form.
        within: the part of the page that has the button.
        button: which one, where the form has several.
    """

    verb: str
    page: str
    asked: str
    look: Look
    becomes: Any
    denied: str
    fill: Mapping[str, str] = {}
    within: str = ""
    button: str = ""


def sql(database: str, statement: str) -> Look:
    """What a statement finds in a database of the application."""
    return lambda world: world.scalar(database, statement)


def projected(column: str) -> Look:
    """A column of what is known of the projection."""
    return sql("read_models", f"SELECT {column} FROM projections WHERE name = 'cups'")


async def _queues(world: World) -> int:
    found = {one.topic: one.queues for one in await world.admin.topics()}
    return found.get("menu", 0)


async def _frozen(world: World) -> tuple[list[int], list[int]]:
    found = await world.admin.topic("menu")
    return list(found.unwritable), list(found.unreadable)


async def _has_old(world: World) -> bool:
    return "old" in {one.topic for one in await world.admin.topics()}


async def _lag(world: World) -> int:
    return sum(one.lag for one in (await world.admin.lag("kitchen", ["orders"])).queues)


async def _is_given(world: World) -> bool:
    return all(one.consume for one in await world.admin.groups() if one.group == "kitchen")


async def _has_cellar(world: World) -> bool:
    return "cellar" in {one.group for one in await world.admin.groups()}


async def _last_order(world: World) -> bytes:
    (record,) = (await world.admin.tail("orders", 1)).records
    return record.body


async def _resent(world: World) -> list[int]:
    found = await world.admin.dead_letters("kitchen")
    return [one.id for one in found if one.resent_at_ms is not None]


async def _letters(world: World) -> list[int]:
    return [one.id for one in await world.admin.dead_letters("kitchen")]


async def _bob(world: World) -> tuple[Any, ...]:
    found = [one for one in await world.admin.users() if one.name == "bob"]
    return tuple((list(one.roles), one.disabled) for one in found)


async def _rules(world: World) -> list[tuple[str, bool]]:
    return [(one.resource, one.allows) for one in await world.admin.rules("role:cooks")]


async def _noted(world: World) -> bool:
    return "what=projection verify cups" in await world.notes()


async def _silent(world: World) -> list[str]:
    return world.silences()


async def _posted(world: World) -> int:
    return len(world.posted)


_CLUSTER: Final = "may not administer cluster"
_KITCHEN: Final = "may not update group:kitchen"
_LETTERS: Final = "may not consume group:kitchen"
_CUPS: Final = "may not update group:tea.projection.cups"
_RULE: Final = {"user": "role:cooks", "resource": "topic:orders", "action": "publish"}
_GENERATIONS: Final = sql(
    "read_models", "SELECT count(*) FROM projection_generations WHERE name = 'cups'"
)

ACTIONS: Final = (
    Action("topic create", "/topics", "Topic menu is made with 3 queues", _queues, 3, "may not create topic:menu",
           {"topic": "menu", "queues": "3"}),
    Action("topic add-queues", "/topic?topic=menu", "gets 5 queues in place of 3", _queues, 5, "may not update topic:menu",
           {"to": "5"}),
    Action("topic freeze", "/topic?topic=menu", "Consumers get nothing from them", _frozen, ([0, 2], [0, 2]),
           "may not update topic:menu", {"queue": "0,2", "writing": "1", "reading": "1"}),
    Action("topic thaw", "/topic?topic=menu", "open again for reading: 0, 2", _frozen, ([], []),
           "may not update topic:menu"),
    Action("topic delete", "/topic?topic=old", "For good: topic old goes with 2 messages", _has_old, False,
           "may not delete topic:old"),
    Action("group reset", "/group?group=kitchen", "0 messages are delivered again, 7 are skipped", _lag, 0, _KITCHEN,
           {"to": "latest"}),
    Action("group undo", "/group?group=kitchen", "7 messages are delivered again", _lag, 7, _KITCHEN),
    Action("group set", "/group?group=kitchen", "its lag grows", _is_given, False, _KITCHEN, button="[value=off]"),
    Action("group set", "/group?group=kitchen", "gets messages again", _is_given, True, _KITCHEN, button="[value=on]"),
    Action("group delete", "/group?group=cellar", "all offsets of group cellar go", _has_cellar, False,
           "may not delete group:cellar"),
    Action("message send", "/messages", "A message of 6 bytes is stored in topic orders", _last_order, b"pepper",
           "may not publish topic:orders", {"topic": "orders", "body": "pepper", "key": "bob"}),
    Action("message resend", "/dead?group=kitchen", "1 dead letters of group kitchen are sent again", _resent, [0],
           "it needs consume on group:kitchen", {"id": "0"}),
    Action("message resend", "/dead?group=kitchen", "4 dead letters of group kitchen are sent again", _resent, [0, 1, 2, 3, 4],
           "it needs consume on group:kitchen", {"rate": "1000"}, within="section:has(h3:text-is('Send all again'))"),
    Action("message purge", "/dead?group=kitchen", "For good: 1 dead letters", _letters, [0, 2, 3, 4], _LETTERS,
           {"id": "1"}, within="form:has(input[name=id])"),
    Action("message purge", "/dead?group=kitchen", "For good: 4 dead letters", _letters, [], _LETTERS,
           within="section:has(h3:text-is('Tidy up'))"),
    Action("user add", "/users", "bob may log in to the broker", _bob, ((["clerks"], False),), _CLUSTER,
           {"name": "bob", "roles": "clerks"}),
    Action("user roles", "/users?name=bob", "become cooks; they were clerks", _bob, ((["cooks"], False),), _CLUSTER,
           {"roles": "cooks"}),
    Action("user disable", "/users?name=bob", "bob is let in no more", _bob, ((["cooks"], True),), _CLUSTER),
    Action("user enable", "/users?name=bob", "bob is let in again", _bob, ((["cooks"], False),), _CLUSTER),
    Action("user remove", "/users?name=bob", "For good: bob is removed", _bob, (), _CLUSTER),
    Action("acl allow", "/rules", "role:cooks may publish topic:orders", _rules, [("topic:orders", True)], _CLUSTER, _RULE),
    Action("acl deny", "/rules", "role:cooks may not publish topic:orders", _rules, [("topic:orders", False)], _CLUSTER, _RULE),
    Action("acl remove", "/rules?user=role:cooks", "The rule goes", _rules, [], _CLUSTER, within="tr:has-text('role:cooks')"),
    Action("parked retry", "/parked", "Parked that are handled again, with the code of now: 1",
           sql("read_models", "SELECT cups FROM cups WHERE pot = 'blue'"), SPILLED, _CUPS, within="tr:has(form):has-text('projection:cups')"),
    Action("parked skip", "/parked", "is left out for good: nothing runs it later",
           sql("event_store", "SELECT count(*) FROM parked"), 0, "may not update group:tea.commands", within="tr:has(form):has-text('commands')"),
    Action("projection pause", "/projection?name=cups", "its lag grows", projected("paused_at IS NOT NULL"), 1, _CUPS),
    Action("projection resume", "/projection?name=cups", "goes on where it stopped", projected("paused_at IS NOT NULL"), 0, _CUPS),
    Action("projection verify", "/projection?name=cups", "live rows of cups are compared", _noted, True, _CUPS),
    Action("projection rebuild", "/projection?name=cups", "The new rows are kept next to them", _GENERATIONS, 2,
           "may not consume topic:tea.events",
           {"switch": "off"}),
    Action("projection switch", "/projection?name=cups", "goes live in place of", projected("generation"), 2, _CUPS),
    Action("projection rollback", "/projection?name=cups", "Generation 1 goes live again", projected("generation"), 1, _CUPS),
    Action("projection drop", "/projection?name=cups", "The table of generation 2", _GENERATIONS, 1, _CUPS),
    Action("process prune", "/process?name=rounds&key=red", "1 instances of rounds that ended",
           sql("read_models", "SELECT count(*) FROM process_instances WHERE ended"), 0, "may not update group:tea.process.rounds",
           {"before": "2100-01-01"}),
    Action("alarms silence", "/alarms", "No message is sent about HeadraceDamage until", _silent, ["HeadraceDamage"], _CLUSTER,
           {"name": "HeadraceDamage", "for": "2h", "why": "a new disk"}),
    Action("alarms unsilence", "/alarms", "root asked for silence: a new disk", _silent, [], _CLUSTER),
    Action("alarms test", "/alarms", "goes to duty. It says that it is a test", _posted, 1, _CLUSTER),
)  # fmt: skip

# What its effect is, is looked at in a group of real brokers; here it is refused.
ELSEWHERE: Final = {"cluster switchover": "test_evening.py::test_another_broker_takes_over"}

SHOWN: Final[Mapping[str, tuple[str, str]]] = {
    "broker show": ("/", "Backlog of all groups"),
    "broker connections": ("/connections", "root"),
    "config show": ("/config?search=connections_max", "connections_max"),
    "audit list": ("/audit", "create_topic"),
    "topic list": ("/topics", "orders"),
    "topic show": ("/topic?topic=orders", "kitchen"),
    "group list": ("/groups", "kitchen"),
    "group show": ("/group?group=kitchen", "7 messages behind"),
    "message show": ("/message?id=orders:0:1", "tea"),
    "message trace": ("/trace?id=orders:0:1", "In the queue"),
    "message find": ("/messages?topic=orders&key=ann", "Messages with the key ann"),
    "message list": ("/messages?topic=orders&queue=0&since=2000-01-01", "Messages of orders from 2000-01-01 on"),
    "message tail": ("/messages?topic=orders", "Last messages of orders"),
    "message search": ("/messages?topic=orders&filter=_bytes+%3E+1", "Searched 7 of 7 messages"),
    "message dead": ("/dead?group=kitchen", "the till was shut"),
    "user list": ("/users", "zoe"),
    "acl list": ("/rules", "group:*"),
    "acl explain": ("/explain?user=ann&action=publish&resource=topic:orders", "ann may not publish topic:orders."),
    "producer list": ("/producers", "root"),
    "aggregate list": ("/aggregates", "red"),
    "stream show": ("/aggregate?id=red", "Brewed"),
    "aggregate show": ("/state?id=red&version=1", '"cups": 4'),
    "aggregate compare": ("/difference?id=red&from=1&to=2", "cups was 4 and is 9"),
    "projection list": ("/projections", "cups"),
    "projection status": ("/projection?name=cups", "Aggregates that it has parked"),
    "process list": ("/processes?ended=1", "rounds"),
    "process show": ("/process?name=rounds&key=red", "What it keeps in mind"),
    "command list": ("/commands", "No command service runs"),
    "command show": ("/command?id=c-red&aggregate=red", "executed"),
    "command results": ("/results", "rejected"),
    "parked list": ("/parked", "no pot holds that many cups"),
    "cluster status": ("/cluster", "in sync"),
    "alarms list": ("/alarms", "HeadraceBrokerDown"),
    "alarms silences": ("/alarms", "There is no silence."),
}  # fmt: skip


async def _without_menu(world: World) -> None:
    await world.admin.freeze("menu", (), writing=True, reading=True)
    await world.admin.delete_queues("menu", 0)


async def _without_bob(world: World) -> None:
    await world.admin.remove_user("bob")


async def _without_cellar(world: World) -> None:
    await world.admin.delete_group("cellar")


async def _without_rule(world: World) -> None:
    await world.admin.remove_rule("role:cooks", "publish", "topic:orders")


async def _without_silence(world: World) -> None:
    for one in world.folder.silences(0):
        world.folder.unsilence(one.id, now_s=0)


class Gone(NamedTuple):
    """Something that was there when the question was asked, and is not when it is answered."""

    action: Action
    meanwhile: Callable[[World], Awaitable[None]]
    sentence: str


def _of(verb: str) -> Action:
    return next(one for one in ACTIONS if one.verb == verb)


GONE: Final = (
    Gone(
        _of("topic add-queues")._replace(fill={"to": "9"}),
        _without_menu,
        "there is no topic 'menu'",
    ),
    Gone(_of("group delete"), _without_cellar, "group 'cellar' has committed no offsets"),
    Gone(_of("user disable"), _without_bob, "there is no user 'bob'"),
    Gone(_of("acl remove"), _without_rule, "there is no such rule"),
    Gone(_of("alarms unsilence"), _without_silence, "silence"),
)
