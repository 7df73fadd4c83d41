"""
The quotas and limits that operators set while the broker runs; durable.

A limit is on disk before it takes effect, and holds across restarts.

Used by `handlers.limits`; kept in a `files.metadata_file`. It never knows requests.
"""

import errno
from collections.abc import Mapping

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.groups.backlogs import Limit
from headrace_mq.broker.quotas.quotas import QuotaTarget
from headrace_mq.errors import InvalidArgument, StoreFull
from headrace_mq.protocol.limits import THEIR_OWN, GroupRules, Rates

__all__ = [
    "LIMITS_MAX",
    "KeptBacklog",
    "KeptGroup",
    "KeptLimits",
    "KeptQuota",
    "Limits",
    "quotas_in",
]

# People set them, for single clients, topics and groups; the file is written as a whole.
LIMITS_MAX = 10_000

_log = get_logger(__name__)


class KeptQuota(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quota as the file holds it, per second; 0: no limit."""

    produce_bytes: int = 0
    produce_messages: int = 0
    fetch_bytes: int = 0
    fetch_messages: int = 0


class KeptBacklog(msgspec.Struct, frozen=True):
    """The backlog limit of a group."""

    messages_max: int
    policy: str


class KeptGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's rules for a group; `paused_at_ms` 0: it is not paused."""

    paused_at_ms: int = 0
    retries: int = THEIR_OWN


class KeptLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `limits.json`: kind -> name -> quota, group -> backlog, group -> its rules."""

    quotas: dict[str, dict[str, KeptQuota]] = {}
    backlogs: dict[str, KeptBacklog] = {}
    groups: dict[str, KeptGroup] = {}


def quotas_in(kept: KeptLimits | None) -> dict[QuotaTarget, Rates]:
    """Returns the quotas in the file of limits; None: there is no file."""
    return {
        QuotaTarget(kind, name): Rates(*msgspec.structs.astuple(quota))
        for kind, names in (kept.quotas.items() if kept is not None else ())
        for name, quota in names.items()
    }


class Limits:
    """The limits of one broker.

    Args:
        file: holds them.

    Attributes:
        paused: the groups that get no messages; every fetch checks it.
    """

    def __init__(self, file: MetadataFile[KeptLimits]) -> None:
        self._file = file
        self._quotas: dict[QuotaTarget, Rates] = {}
        self._backlogs: dict[str, Limit] = {}
        self._groups: dict[str, GroupRules] = {}
        self.paused: frozenset[str] = frozenset()

    @property
    def quotas(self) -> Mapping[QuotaTarget, Rates]:
        """The quotas of single clients and topics."""
        return self._quotas

    @property
    def backlogs(self) -> Mapping[str, Limit]:
        """The backlog limits of groups."""
        return self._backlogs

    @property
    def groups(self) -> Mapping[str, GroupRules]:
        """The rules of groups."""
        return self._groups

    def rules(self, group: str) -> GroupRules:
        """Returns the rules of a group."""
        return self._groups.get(group) or GroupRules(group)

    def load(self) -> None:
        """Reads the file. Raises DataCorrupt, FormatTooNew: it cannot be used."""
        kept = self._file.read()
        if kept is not None:
            self._quotas = quotas_in(kept)
            self._backlogs = {
                group: Limit(backlog.messages_max, backlog.policy)
                for group, backlog in kept.backlogs.items()
            }
            self._rule(
                {
                    group: GroupRules(group, not one.paused_at_ms, one.retries, one.paused_at_ms)
                    for group, one in kept.groups.items()
                }
            )
        for group in sorted(self.paused):
            _log.warning(
                "an operator has paused a group; it gets no messages until `headrace group set`",
                group=group,
            )

    def set_quota(self, whose: QuotaTarget, rates: Rates | None) -> None:
        """Sets a quota, or removes it with None; durable.

        Raises:
            InvalidArgument: there are too many.
            StoreFull: the disk is full; the limits stay as they were.
        """
        quotas = {one: held for one, held in self._quotas.items() if one != whose}
        if rates is not None:
            quotas[whose] = rates
        self._write(quotas, self._backlogs, self._groups)
        self._quotas = quotas
        _log.info("quota set", kind=whose.kind, name=whose.name, rates=rates)

    def set_backlog(self, group: str, limit: Limit | None) -> None:
        """Sets the backlog limit of a group, or removes it with None; durable.

        Raises:
            InvalidArgument: there are too many.
            StoreFull: the disk is full; the limits stay as they were.
        """
        backlogs = {one: held for one, held in self._backlogs.items() if one != group}
        if limit is not None:
            backlogs[group] = limit
        self._write(self._quotas, backlogs, self._groups)
        self._backlogs = backlogs
        _log.info("backlog limit set", group=group, limit=limit)

    def set_group(self, rules: GroupRules) -> None:
        """Sets the rules of a group; durable.

        Raises:
            InvalidArgument: there are too many limits.
            StoreFull: the disk is full; no rule changes.
        """
        groups = {name: held for name, held in self._groups.items() if name != rules.group}
        if rules != GroupRules(rules.group):
            groups[rules.group] = rules
        self._write(self._quotas, self._backlogs, groups)
        self._rule(groups)
        _log.warning("an operator changed the rules of a group", group=rules.group, rules=rules)

    def _rule(self, groups: dict[str, GroupRules]) -> None:
        self._groups = groups
        self.paused = frozenset(name for name, rules in groups.items() if not rules.consume)

    def _write(
        self,
        quotas: Mapping[QuotaTarget, Rates],
        backlogs: Mapping[str, Limit],
        groups: Mapping[str, GroupRules],
    ) -> None:
        if len(quotas) + len(backlogs) + len(groups) > LIMITS_MAX:
            raise InvalidArgument(
                f"a broker has at most {LIMITS_MAX} limits; remove some, or use the defaults in its"
                " settings"
            )
        kept: dict[str, dict[str, KeptQuota]] = {}
        for (kind, name), rates in sorted(quotas.items(), key=lambda item: item[0]):
            quota = KeptQuota(*msgspec.structs.astuple(rates))
            kept.setdefault(kind, {})[name] = quota
        try:
            self._file.write(
                KeptLimits(
                    kept,
                    {one: KeptBacklog(*limit) for one, limit in backlogs.items()},
                    {
                        one: KeptGroup(rules.paused_at_ms, rules.retries)
                        for one, rules in groups.items()
                    },
                )
            )
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StoreFull(
                f"the disk of {self._file.path} is full and the limits stay as they were; free some"
                " space, then try again"
            ) from error
