"""
The verbs about who may do what: users, rules, why something is denied, and the connections of producers.

Used by `catalogue`; asks the broker as `headrace user`, `acl` and `producer` do. A password is asked for with the question
before a change, so that no page repeats it.
"""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import SecretStr

from headrace.console.verbs.topic import PAGE_ROWS, paged
from headrace.console.verbs.verb import Consequence, Given, Verb, VerbField
from headrace_mq._net.address import BrokerAddress
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.access import RuleEntry, UserEntry

__all__ = ["ACCESS", "user_of"]

_NAME: Final = VerbField("name")
_PAGE: Final = (VerbField("page", "number", 1), VerbField("rows", "number", PAGE_ROWS))
_RULE: Final = (VerbField("user"), VerbField("action"), VerbField("resource"))
_COLUMNS: Final = ("rule", "who", "action", "resource")


def user_of(admin: AdminClient) -> str:
    """Returns the user that a connection has logged in as; empty: there is no login."""
    login = BrokerAddress.parse(admin.address).login
    return "" if login is None else str(login.user)


async def _users(admin: AdminClient, given: Given) -> Any:
    wanted = given["search"].lower()
    found = [one for one in await admin.users() if wanted in one.name.lower()]
    shown, place = paged(found, given)
    return {"users": shown, **place}


async def _add(admin: AdminClient, given: Given) -> Any:
    password: SecretStr | None = given["password"]
    if password is None and not given["certificate"]:
        raise ValueError("password is missing; write it, or choose certificate")
    if password is not None and given["certificate"]:
        raise ValueError("a user with a certificate has no password; leave one of them out")
    return await admin.add_user(given["name"], password, roles=given["roles"], admin=given["admin"])


async def _before_add(admin: AdminClient, given: Given) -> Consequence:
    name = given["name"]
    if any(one.name == name for one in await admin.users()):
        return Consequence((), hindered=f"there is a user {name} already")
    told = [f"{name} may log in to the broker from now on."]
    if given["admin"]:
        told.append("As an administrator it may do everything, and no rule limits it.")
    else:
        roles = f", and those of {', '.join(given['roles'])}" if given["roles"] else ""
        told.append(f"It may do what its own rules allow{roles}; without a rule that is nothing.")
    if given["certificate"]:
        told.append("It has no password: its name is the subject of its certificate.")
        return Consequence(told)
    return Consequence(told, secrets=("password",))


async def _roles(admin: AdminClient, given: Given) -> Any:
    return await admin.change_user(given["name"], roles=given["roles"])


async def _before_roles(admin: AdminClient, given: Given) -> Consequence:
    one = await _found(admin, given["name"])
    before, after = " ".join(one.roles) or "none", " ".join(given["roles"]) or "none"
    return Consequence(
        (f"The roles of {one.name} become {after}; they were {before}.",
         "What their rules allow and deny holds at once, also on connections that are open."),
    )  # fmt: skip


async def _disable(admin: AdminClient, given: Given) -> Any:
    return await admin.change_user(given["name"], disabled=True)


async def _before_disable(admin: AdminClient, given: Given) -> Consequence:
    one = await _found(admin, given["name"])
    return Consequence(
        (f"{one.name} is let in no more, and its connections end at once. Its rules stay.", *_self(admin, one)),
        hindered="it is disabled already" if one.disabled else "",
    )  # fmt: skip


async def _enable(admin: AdminClient, given: Given) -> Any:
    return await admin.change_user(given["name"], disabled=False)


async def _before_enable(admin: AdminClient, given: Given) -> Consequence:
    one = await _found(admin, given["name"])
    return Consequence(
        (f"{one.name} is let in again, with the rules that it has.",),
        hindered="" if one.disabled else "it is not disabled",
    )


async def _remove(admin: AdminClient, given: Given) -> Any:
    return await admin.remove_user(given["name"])


async def _before_remove(admin: AdminClient, given: Given) -> Consequence:
    one = await _found(admin, given["name"])
    own = [rule for rule in await admin.rules() if rule.subject == one.name]
    return Consequence(
        (f"For good: {one.name} is removed with {len(own):,} rules of its own, and its connections end at once.",
         *_self(admin, one)),
        _COLUMNS,
        _rows(own),
    )  # fmt: skip


async def _rules(admin: AdminClient, given: Given) -> Any:
    shown, place = paged(await admin.rules(given["user"]), given)
    return {"rules": shown, **place}


async def _allow(admin: AdminClient, given: Given) -> Any:
    return await admin.set_rule(given["user"], given["action"], given["resource"], allows=True)


async def _before_allow(admin: AdminClient, given: Given) -> Consequence:
    return Consequence(
        (f"{given['user']} may {_doing(given)}, at once, unless another rule denies it.",
         "A rule that denied the same is replaced."),
        _COLUMNS,
        _rows(await admin.rules(given["user"])),
    )  # fmt: skip


async def _deny(admin: AdminClient, given: Given) -> Any:
    return await admin.set_rule(given["user"], given["action"], given["resource"], allows=False)


async def _before_deny(admin: AdminClient, given: Given) -> Consequence:
    return Consequence(
        (f"{given['user']} may not {_doing(given)}, at once and on connections that are open, whichever rules allow it.",
         "A rule that allowed the same is replaced. No rule limits an administrator."),
        _COLUMNS,
        _rows(await admin.rules(given["user"])),
    )  # fmt: skip


async def _unset(admin: AdminClient, given: Given) -> Any:
    return await admin.remove_rule(given["user"], given["action"], given["resource"])


async def _before_unset(admin: AdminClient, given: Given) -> Consequence:
    wanted = given["user"], given["action"], given["resource"]
    held = [
        one
        for one in await admin.rules(given["user"])
        if (one.subject, one.action, one.resource) == wanted
    ]
    if not held:
        return Consequence((), hindered=f"there is no such rule of {given['user']}")
    effect = "no longer allowed by it" if held[0].allows else "no longer denied by it"
    return Consequence(
        (
            f"The rule goes: what it is about is {effect}, at once and on connections that are open.",
        ),
        _COLUMNS,
        _rows(held),
    )


async def _explain(admin: AdminClient, given: Given) -> Any:
    found = await admin.explain(given["user"], given["action"], given["resource"])
    return {
        "user": given["user"],
        "action": given["action"],
        "resource": given["resource"],
        "allowed": found.allowed,
        "reason": found.reason,
        "rule": found.rule,
    }


async def _producers(admin: AdminClient, given: Given) -> Any:
    shown, place = paged(await admin.connections("producer"), given)
    return {"producers": shown, **place}


async def _found(admin: AdminClient, name: str) -> UserEntry:
    found = next((one for one in await admin.users() if one.name == name), None)
    if found is None:
        raise InvalidArgument(f"there is no user {name}")
    return found


def _self(admin: AdminClient, one: UserEntry) -> tuple[str, ...]:
    return ("That is you: you will be signed out here, too.",) if one.name == user_of(admin) else ()


def _doing(given: Given) -> str:
    action = "do anything to" if given["action"] == "*" else given["action"]
    return f"{action} {given['resource']}"


def _rows(rules: Sequence[RuleEntry]) -> list[tuple[object, ...]]:
    return [
        ("allow" if one.allows else "deny", one.subject, one.action, one.resource) for one in rules
    ]


def _said_user(given: Given, _: Any) -> str:
    return f"user {given['name']}: done"


def _said_rule(given: Given, _: Any) -> str:
    return f"{given['user']} {given['action']} {given['resource']}: done"


ACCESS: Final = (
    Verb("user list", _users, (VerbField("search", default=""), *_PAGE)),
    Verb(
        "user add",
        _add,
        (
            _NAME,
            VerbField("roles", "texts", ()),
            VerbField("admin", "flag", default=False),
            VerbField("certificate", "flag", default=False),
            VerbField("password", "secret", None),
        ),
        _before_add,
        _said_user,
    ),
    Verb("user roles", _roles, (_NAME, VerbField("roles", "texts", ())), _before_roles, _said_user),
    Verb("user disable", _disable, (_NAME,), _before_disable, _said_user),
    Verb("user enable", _enable, (_NAME,), _before_enable, _said_user),
    Verb("user remove", _remove, (_NAME,), _before_remove, _said_user),
    Verb("acl list", _rules, (VerbField("user", default=""), *_PAGE)),
    Verb("acl allow", _allow, _RULE, _before_allow, _said_rule),
    Verb("acl deny", _deny, _RULE, _before_deny, _said_rule),
    Verb("acl remove", _unset, _RULE, _before_unset, _said_rule),
    Verb("acl explain", _explain, _RULE),
    Verb("producer list", _producers, _PAGE),
)
