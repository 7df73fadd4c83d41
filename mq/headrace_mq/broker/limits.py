"""
The limits that somebody set while the broker ran; durable.

A limit is on disk before anyone hears of it, and holds across restarts.

Sits between: `handlers.limits`, and a `metadata_file`. Must never know requests.
"""

import errno
from collections.abc import Mapping

import msgspec
import structlog

from headrace_mq.broker.metadata_file import MetadataFile
from headrace_mq.broker.quotas import Whose
from headrace_mq.errors import InvalidArgument, StoreFull
from headrace_mq.protocol.limits import Rates

__all__ = ["LIMITS_MAX", "KeptLimits", "KeptQuota", "Limits"]

# Set by people, for single clients and topics; the file is written as a whole.
LIMITS_MAX = 10_000

_log = structlog.get_logger(__name__)


class KeptQuota(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quota as the file holds it, per second; 0: no limit."""

    produce_bytes: int = 0
    produce_messages: int = 0
    fetch_bytes: int = 0
    fetch_messages: int = 0


class KeptLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `limits.json`: kind -> name -> quota."""

    quotas: dict[str, dict[str, KeptQuota]] = {}


class Limits:
    """The limits of one broker.

    Args:
        file: where they are kept.
    """

    def __init__(self, file: MetadataFile[KeptLimits]) -> None:
        self._file = file
        self._quotas: dict[Whose, Rates] = {}

    @property
    def quotas(self) -> Mapping[Whose, Rates]:
        """The quotas of single clients and topics."""
        return self._quotas

    def load(self) -> None:
        """Reads the file. Raises DataCorrupt, FormatTooNew: it cannot be used."""
        kept = self._file.read()
        if kept is not None:
            self._quotas = {
                Whose(kind, name): Rates(*msgspec.structs.astuple(quota))
                for kind, names in kept.quotas.items()
                for name, quota in names.items()
            }

    def set_quota(self, whose: Whose, rates: Rates | None) -> None:
        """Sets a quota, or takes it away with None; durable.

        Raises:
            InvalidArgument: there are too many.
            StoreFull: the disk is full; the limits stay as they were.
        """
        quotas = {one: held for one, held in self._quotas.items() if one != whose}
        if rates is not None:
            quotas[whose] = rates
        self._write(quotas)
        self._quotas = quotas
        _log.info("quota set", kind=whose.kind, name=whose.name, rates=rates)

    def _write(self, quotas: Mapping[Whose, Rates]) -> None:
        if len(quotas) > LIMITS_MAX:
            raise InvalidArgument(
                f"a broker has at most {LIMITS_MAX} limits; remove some, or use the defaults in its"
                " settings"
            )
        kept: dict[str, dict[str, KeptQuota]] = {}
        for (kind, name), rates in sorted(quotas.items(), key=lambda item: item[0]):
            quota = KeptQuota(*msgspec.structs.astuple(rates))
            kept.setdefault(kind, {})[name] = quota
        try:
            self._file.write(KeptLimits(kept))
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StoreFull(
                f"the disk of {self._file.path} is full and the limits stay as they were; free some"
                " space, then try again"
            ) from error
