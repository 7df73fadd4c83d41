"""
Which roles may send which commands and read which rows, as an application declares it.

    nothing declared    every principal may do everything
    something declared  what is not declared is refused

What is sent without a principal comes from the application itself and is not asked about. Pure.

Used by `App`, which declares, by the gateway and by the command service, which both ask.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from headrace.access.principal import Principal, check_role

__all__ = ["ANY_ROLE", "Allowances"]

# Stands for every principal, also one without roles.
ANY_ROLE: Final = "*"


class Allowances:
    """What the roles of an application may do; empty at first.

    Attributes:
        declared: whether anything is.
    """

    def __init__(self) -> None:
        self.declared = False
        self._commands: defaultdict[str, set[str]] = defaultdict(set)
        self._rows: defaultdict[str, set[str]] = defaultdict(set)
        self._results: set[str] = set()

    def allow(
        self,
        roles: Iterable[str],
        *,
        commands: Iterable[str] = (),
        projections: Iterable[str] = (),
        results: bool = False,
    ) -> None:
        """Allows roles to do something more.

        Args:
            roles: one or more; `ANY_ROLE` is every principal.
            commands: they may send these, by name.
            projections: they may read the rows of these, by name.
            results: they may see the results of the commands of others.

        Raises:
            ValueError: there is no role, or one that cannot be.
        """
        some = {check_role(role) for role in roles}
        if not some:
            raise ValueError("name a role, or '*' for every principal")
        self.declared = True
        for name in commands:
            self._commands[name] |= some
        for name in projections:
            self._rows[name] |= some
        if results:
            self._results |= some

    def may_send(self, principal: Principal | None, command: str) -> bool:
        """Whether a command may be sent, by its name."""
        return not self.declared or _may(principal, self._commands.get(command, ()))

    def may_read(self, principal: Principal | None, projection: str) -> bool:
        """Whether the rows of a projection may be read, by its name."""
        return not self.declared or _may(principal, self._rows.get(projection, ()))

    def may_see_all_results(self, principal: Principal) -> bool:
        """Whether a principal may see the results of the commands of others; only if that is declared."""
        return _may(principal, self._results)


def _may(principal: Principal | None, roles: Iterable[str]) -> bool:
    allowed = set(roles)
    return principal is None or ANY_ROLE in allowed or not allowed.isdisjoint(principal.roles)
