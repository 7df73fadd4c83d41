"""
Administration of users and permissions.

A part of `AdminClient`. A password stays here: the broker is sent what it checks proofs by.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace_mq._net.address import BrokerAddress
from headrace_mq._net.login import credentials_of
from headrace_mq.admin.connection import AdminConnection
from headrace_mq.errors import InvalidArgument, NotPermitted
from headrace_mq.protocol.access import (
    AS_IT_IS,
    ExplainAccess,
    Explanation,
    ListRules,
    RuleEntry,
    RulesAnswer,
    SetPassword,
    SetRule,
    SetUser,
    UserEntry,
    UsersAnswer,
)
from headrace_mq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["UserAdministration"]

# Of an answer of an older broker; the present one answers that everything is allowed.
_NO_LOGIN: Final = "this broker has no login"


class UserAdministration(AdminConnection):
    """The calls about users and rules; each takes effect at once, also on connections that are open."""

    async def users(self) -> list[UserEntry]:
        """All users. Raises InvalidArgument: this broker has no login."""
        return (await self._ask(UsersAnswer, RequestCode.LIST_USERS)).users

    async def add_user(
        self,
        name: str,
        password: "SecretStr | None",
        *,
        roles: Sequence[str] = (),
        admin: bool = False,
        key: bytes = b"",
    ) -> UserEntry:
        """Adds a user; durable.

        Args:
            name: as it logs in; without a password the whole subject of its certificate, `CN=reports,O=Bank`.
            password: None for a user with a certificate or a key.
            roles: whose rules hold for it, too.
            admin: whether it may do everything.
            key: its public key of Ed25519, if it has one.

        Raises:
            InvalidArgument: there is a user of that name, or a value is out of its range.
            NotPermitted: only administrators make administrators.
            StoreFull: the broker's disk is full; nothing was changed.
        """
        made = [] if password is None else [credentials_of(password)]
        return await self._set(
            SetUser(
                "add",
                name,
                made,
                set_roles=True,
                roles=list(roles),
                admin=int(admin),
                keys=[key] if key else [],
            )
        )

    async def change_user(
        self, name: str, *, roles: Sequence[str] | None = None, disabled: bool | None = None
    ) -> UserEntry:
        """Changes the roles of a user, or whether it is disabled; durable. Raises as `add_user`."""
        off = AS_IT_IS if disabled is None else int(disabled)
        return await self._set(
            SetUser(
                "change", name, set_roles=roles is not None, roles=list(roles or ()), disabled=off
            )
        )

    async def set_key(self, name: str, key: bytes) -> UserEntry:
        """Sets the public key of a user, in place of the one it has; durable. Its connections end. Raises as `add_user`."""
        return await self._set(SetUser("change", name, keys=[key]))

    async def remove_user(self, name: str) -> UserEntry:
        """Removes a user with its own rules; durable. Raises as `add_user`."""
        return await self._set(SetUser("remove", name))

    async def set_password(self, name: str, password: "SecretStr") -> UserEntry:
        """Changes a password: your own, or as an administrator that of another; durable.

        Other connections of the user end.

        Raises:
            NotPermitted: it is the password of another user.
            InvalidArgument: there is no such user.
            StoreFull: the broker's disk is full; nothing was changed.
        """
        asked = SetPassword(name, credentials_of(password))
        return (await self._ask(UsersAnswer, RequestCode.SET_PASSWORD, asked)).users[0]

    async def set_rule(
        self, subject: str, action: str, resource: str, *, allows: bool
    ) -> list[RuleEntry]:
        """Allows something or denies it, in place of a rule about the same; durable.

        Args:
            subject: a user, or `role:NAME`.
            action: such as "publish"; "*" for all.
            resource: such as "topic:orders", "topic:orders.*", "group:*", "cluster".
            allows: whether it allows that, or denies it.

        Returns:
            The rules of the subject.

        Raises:
            InvalidArgument: a word has no meaning, or there is no such user.
            StoreFull: the broker's disk is full; nothing was changed.
        """
        asked = SetRule(RuleEntry(subject, action, resource, allows))
        return (await self._ask(RulesAnswer, RequestCode.SET_RULE, asked)).rules

    async def remove_rule(self, subject: str, action: str, resource: str) -> list[RuleEntry]:
        """Takes a rule away; durable. Raises as `set_rule`, and InvalidArgument if there is none."""
        asked = SetRule(RuleEntry(subject, action, resource, allows=True), remove=True)
        return (await self._ask(RulesAnswer, RequestCode.SET_RULE, asked)).rules

    async def rules(self, subject: str = "") -> list[RuleEntry]:
        """The rules of a user with those of its roles, or of a role; all without a subject."""
        return (await self._ask(RulesAnswer, RequestCode.LIST_RULES, ListRules(subject))).rules

    async def explain(self, user: str, action: str, resource: str) -> Explanation:
        """Whether a user may do something, and which rule decides. Raises InvalidArgument."""
        asked = ExplainAccess(user, action, resource)
        return await self._ask(Explanation, RequestCode.EXPLAIN_ACCESS, asked)

    async def may(self, action: str, resource: str) -> Explanation:
        """Whether you may do something, and which rule decides; without a login all may do everything.

        Raises:
            InvalidArgument: a word has no meaning.
            NotPermitted: the broker is an older one, which tells this to administrators alone.
        """
        login = BrokerAddress.parse(self.address).login
        try:
            # An older broker takes an empty name for a user without rights.
            return await self.explain("" if login is None else login.user, action, resource)
        except InvalidArgument as error:
            if _NO_LOGIN not in str(error):
                raise
            return Explanation(allowed=True, reason=_NO_LOGIN)
        except NotPermitted as error:
            raise NotPermitted(
                "this broker is older than your program and does not tell what you may do; upgrade the broker first"
            ) from error

    async def _set(self, asked: SetUser) -> UserEntry:
        return (await self._ask(UsersAnswer, RequestCode.SET_USER, asked)).users[0]
