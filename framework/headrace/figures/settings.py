"""
The settings of running brokers next to each other: value, unit, default, what gave each, and where brokers differ.

    store.flush   interval at a:9876 from broker.toml, always at b:9876 by default   differs

Used by `headrace config show --running` and by the console. Loads the queue only when it is asked.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.protocol.limits import SettingDescription

__all__ = [
    "RunningSetting",
    "SettingOfBroker",
    "SettingsOfBrokers",
    "chosen",
    "compared",
    "settings_shown",
]

# A broker that runs answers within milliseconds; so long a person waits for one that does not.
_WITHIN_MS: Final = 5_000
_DEFAULT: Final = "default"
# Each broker of a group has its own of these.
_OWN: Final = frozenset({
    "host", "port", "metrics", "tls_certificate", "tls_key", "store.directory", "group.advertise", "group.user",
    "group.password_file", "names.advertise",
})  # fmt: skip
_UNITS: Final[Mapping[str, str]] = {
    "produce_bytes": "bytes per second", "fetch_bytes": "bytes per second", "produce_messages": "messages per second",
    "fetch_messages": "messages per second", "_per_minute": "per minute", "bytes_per_s": "bytes per second", "_per_second": "per second", "_percent": "%",
    "_us": "microseconds", "_ms": "milliseconds", "_bytes": "bytes",
}  # fmt: skip


class SettingOfBroker(NamedTuple):
    """What a setting is at a broker, and what gave it: `default`, a file, a variable, an option or the program."""

    broker: str
    value: str
    source: str


class RunningSetting(NamedTuple):
    """A setting of brokers that run.

    Attributes:
        name: with its part, such as `store.flush`.
        unit: of value and default; empty: none.
        default: empty where it must be given.
        brokers: what it is at each; a broker without the part, such as an archive, is missing.
        given: whether anything gave it at one of them.
        differs: whether brokers that should have the same have not.
    """

    name: str
    unit: str
    default: str
    brokers: Sequence[SettingOfBroker]
    given: bool
    differs: bool


class SettingsOfBrokers(NamedTuple):
    """The settings of all brokers that answer.

    Attributes:
        brokers: those that answered.
        silent: why the others did not.
        settings: as the first broker has them, and then what only others have.
    """

    brokers: Sequence[str]
    silent: Mapping[str, str]
    settings: Sequence[RunningSetting]


def compared(
    answers: "Mapping[str, Sequence[SettingDescription]]", own: Collection[str] = _OWN
) -> list[RunningSetting]:
    """Returns the settings of brokers next to each other.

    Args:
        answers: what each broker said.
        own: settings in which each may differ.
    """
    found: dict[str, list[SettingOfBroker]] = {}
    defaults: dict[str, str] = {}
    for broker, settings in answers.items():
        for one in settings:
            found.setdefault(one.name, []).append(SettingOfBroker(broker, one.value, one.source))
            defaults.setdefault(one.name, one.default)
    return [
        RunningSetting(
            name,
            next((unit for part, unit in _UNITS.items() if part in name), ""),
            defaults[name],
            brokers,
            any(one.source != _DEFAULT for one in brokers),
            name not in own and (len({one.value for one in brokers}) > 1 or len(brokers) < len(answers)),
        )
        for name, brokers in found.items()
    ]  # fmt: skip


def chosen(
    found: SettingsOfBrokers, *, given: bool = False, differing: bool = False, search: str = ""
) -> SettingsOfBrokers:
    """Returns some of the settings.

    Args:
        found: all of them.
        given: leaves out those that have their default everywhere.
        differing: leaves out those in which brokers agree.
        search: a part of the name.
    """
    kept = [
        one
        for one in found.settings
        if (one.given or not given)
        and (one.differs or not differing)
        and search.lower() in one.name.lower()
    ]
    return found._replace(settings=kept)


async def settings_shown(admin: "AdminClient") -> SettingsOfBrokers:
    """Returns the settings of the broker of a connection; where its address names several, those of each.

    Args:
        admin: the connection; its user may read the cluster.

    Raises:
        NotPermitted: this user may not.
        MessageQueueError: no broker answers.
    """
    from headrace_mq._net.address import BrokerAddress, place_name

    address = BrokerAddress.parse(admin.address)
    if address.cluster is not None or len(address.places) == 1:
        name = (await admin.describe()).broker
        return SettingsOfBrokers([name], {}, compared({name: (await admin.settings()).settings}))
    names = list(map(place_name, address.places))
    answers = await asyncio.gather(
        *(_ask(name, str(address._replace(places=(place,)))) for name, place in zip(names, address.places, strict=True))
    )  # fmt: skip
    found = dict(zip(names, answers, strict=True))
    silent = {name: one for name, one in found.items() if isinstance(one, str)}
    told = {name: one for name, one in found.items() if not isinstance(one, str)}
    return SettingsOfBrokers(list(told), silent, compared(told))


async def _ask(name: str, address: str) -> "list[SettingDescription] | str":
    """The settings of one broker, or why it does not answer; without the name of the file of a password."""
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.errors import MessageQueueError

    try:
        async with AdminClient(address, timeout_ms=_WITHIN_MS, reads=True) as admin:
            return (await admin.settings()).settings
    except MessageQueueError as error:
        return str(error).replace(address, name)
