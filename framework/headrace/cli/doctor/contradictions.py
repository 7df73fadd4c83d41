"""
Settings that contradict each other: each pair is a row here, with what it means and what to do.

The settings' own classes refuse what cannot work at all, such as a certificate without its key. The pairs here are
accepted, and one of the two then does nothing, or not what you expect. Used by `headrace doctor`. Pure.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.cli.doctor.findings import Finding, failed, ok, shown, warning
from headrace.errors import HeadraceError
from headrace.gateway.settings import GatewaySettings
from headrace.settings import Settings
from headrace.transports.kafka.address import is_kafka
from headrace_mq._net.address import BrokerAddress
from headrace_mq._runtime.checks import is_loopback
from headrace_mq.settings import BrokerSettings, ConsumerSettings, StoreSettings

__all__ = ["CLASHES", "Clash", "DeploymentSettings", "contradictions"]

# An orchestrator kills a process that has not stopped by then.
_STOP_MS: Final = 30_000
_NEVER_PERCENT: Final = 100
_FLUSH_MS: Final = StoreSettings(directory=Path()).flush_interval_ms


class DeploymentSettings(NamedTuple):
    """The settings of a deployment; None: they were not given.

    Attributes:
        broker: of its broker, with those of the store, the archive and the group.
        run: of its application.
        http: of the application's gateway.
    """

    broker: BrokerSettings | None = None
    run: Settings | None = None
    http: GatewaySettings | None = None

    def part(self, name: str) -> Any:
        """Returns the settings of a part by its name; None where they were not given."""
        if name == "consumer":  # of each client that says nothing else
            return ConsumerSettings()
        if name in {"store", "archive", "group", "names"}:
            return None if self.broker is None else getattr(self.broker, name)
        return getattr(self, name)

    def value(self, setting: str) -> Any:
        """Returns the value of `part.name`; the part must be there."""
        part, _, name = setting.partition(".")
        return getattr(self.part(part), name)


class Clash(NamedTuple):
    """Two settings that may contradict each other.

    Attributes:
        one: the first setting, `part.name`.
        other: the second one.
        holds: whether these two values contradict each other.
        means: what happens then.
        advice: what to do.
        fails: whether the deployment does not work then.
        unless: settings that make the pair good, if one of them is set.
    """

    one: str
    other: str
    holds: Callable[[Any, Any], bool]
    means: str
    advice: str
    fails: bool = False
    unless: tuple[str, ...] = ()


def _above(one: int, other: int) -> bool:
    return one > other


def _not_below(one: int, other: int) -> bool:
    return one >= other


def _limits_below(one: int, other: int) -> bool:
    """Whether a limit, of which 0 means none, is below the other value."""
    return 0 < one < other


def _same_port(one: str | None, other: int) -> bool:
    """Whether an address to listen on has this port; port 0 takes a free one."""
    return bool(other) and one is not None and one.rpartition(":")[2] == str(other)


def _speaks_tls(address: str) -> bool:
    try:
        return BrokerAddress.parse(address).tls is not None
    except ValueError:  # said of the broker already
        return address.startswith("tls://")


def _in_memory(url: str) -> bool:
    from headrace.stores.open import is_kept_in_memory  # what a database needs takes long to load

    try:
        return is_kept_in_memory(url)
    except HeadraceError:  # the look at the database says that it is none
        return False


CLASHES: Final = (
    Clash("store.disk_delete_percent", "store.disk_refuse_percent",
        lambda one, other: other <= one < _NEVER_PERCENT,
        "messages are refused before consumed ones are deleted early",
        "set disk_delete_percent below disk_refuse_percent, or to 100 for never"),
    Clash("store.unconsumed_ms_max", "store.transient_age_ms", _limits_below,
        "unconsumed messages are kept no longer than others, so unconsumed_ms_max does nothing",
        "set unconsumed_ms_max above transient_age_ms, or to 0"),
    Clash("store.transient_bytes_max", "store.segment_bytes", _limits_below,
        "the log stays above its limit, because whole segments are deleted and the newest one stays",
        "set segment_bytes to a tenth of transient_bytes_max or less"),
    Clash("store.flush_interval_ms", "store.flush",
        lambda one, other: one != _FLUSH_MS and other == "always",
        "each message is flushed, so flush_interval_ms does nothing",
        "leave flush_interval_ms out, or set flush=interval and lose its messages in a power cut"),
    Clash("broker.lock_expiry_ms", "broker.member_expiry_ms", _not_below,
        "the queues of a member that hangs are given to others before its lock on them ends",
        "set lock_expiry_ms to a third of member_expiry_ms or less"),
    Clash("broker.lock_expiry_ms", "consumer.heartbeat_ms",
        lambda one, other: one < 3 * other,
        "members lose the locks on their queues between two heartbeats",
        "set lock_expiry_ms to ten times the heartbeat_ms of consumers", fails=True),
    Clash("broker.member_expiry_ms", "consumer.heartbeat_ms",
        lambda one, other: one < 3 * other,
        "members are put out of their group between two heartbeats",
        "set member_expiry_ms to thirty times the heartbeat_ms of consumers", fails=True),
    Clash("broker.throttle_ms_max", "consumer.request_timeout_ms", _not_below,
        "clients give up a request that waits for a quota before the broker answers",
        "set throttle_ms_max to half of the clients' request_timeout_ms"),
    Clash("broker.connections_per_address_max", "broker.connections_max", _above,
        "one address may take all connections",
        "set connections_per_address_max to a part of connections_max"),
    Clash("broker.connections_before_hello_max", "broker.connections_max", _above,
        "clients that say nothing may take all connections",
        "set connections_before_hello_max to a part of connections_max"),
    Clash("broker.connections_before_hello_per_address_max", "broker.connections_before_hello_max", _above,
        "one address may keep out all new clients",
        "set connections_before_hello_per_address_max to half of connections_before_hello_max"),
    Clash("broker.memberships_bytes_per_connection_max", "broker.memberships_bytes_max", _above,
        "one connection may take all memory for members",
        "set memberships_bytes_per_connection_max to a part of memberships_bytes_max"),
    Clash("broker.frame_bytes_max", "broker.requests_bytes_max", _above,
        "a connection is closed before its largest request has arrived",
        "set requests_bytes_max to some times frame_bytes_max", fails=True),
    Clash("broker.outgoing_bytes_max", "broker.answers_bytes_max", _above,
        "the broker closes a slow reader's connection before it stops reading from it",
        "set answers_bytes_max to some times outgoing_bytes_max"),
    Clash("broker.insecure", "broker.host",
        lambda one, other: one and not is_loopback(other),
        "those who reach this address may read or do everything, if TLS or a login is missing",
        "set tls_certificate, tls_key and login, and leave insecure out, unless the network itself is safe"),
    Clash("broker.insecure", "broker.host",
        lambda one, other: one and is_loopback(other),
        "only this machine reaches the broker, so insecure does nothing, until host is changed",
        "leave insecure out"),
    Clash("archive.alarm_bytes", "archive.backlog_bytes_max", _not_below,
        "messages are refused before there is an alarm",
        "set alarm_bytes well below backlog_bytes_max"),
    Clash("archive.block_bytes_max", "archive.cache_bytes", _above,
        "a block that was read back does not fit into the cache, and is read again and again",
        "set cache_bytes to some times block_bytes_max"),
    Clash("run.retry_ms_min", "run.retry_ms_max", _above,
        "the first pause before a retry is longer than the longest one",
        "set retry_ms_min below retry_ms_max"),
    Clash("run.result_resend_ms", "run.result_timeout_ms", _not_below,
        "a caller gives up before it asks again for a result that was lost",
        "set result_resend_ms to a third of result_timeout_ms or less"),
    Clash("run.commit_streams_max", "run.commands_in_flight_max", _above,
        "a transaction never has as many streams",
        "set commit_streams_max to half of commands_in_flight_max or less"),
    Clash("run.letters_alarm_count", "run.projection_letters_max", _above,
        "a reader of events stops before there is an alarm",
        "set letters_alarm_count below projection_letters_max"),
    Clash("run.alarm_check_ms", "run.letters_alarm_age_ms", _above,
        "an alarm comes later than letters_alarm_age_ms says",
        "set alarm_check_ms below letters_alarm_age_ms"),
    Clash("run.process_ended_ms", "store.unconsumed_ms_max",
        lambda one, other: one is not None and one < other,
        "an event that was unconsumed for long may start an ended process again",
        "set process_ended_ms to four times unconsumed_ms_max"),
    Clash("run.event_store", "run.broker",
        lambda one, other: _in_memory(one) and other is not None,
        "the events end with the process, and the broker keeps what followed from them",
        "name a database as event_store: sqlite:///FILE or postgresql://USER@HOST/DATABASE", fails=True),
    Clash("run.read_models", "run.event_store",
        lambda one, other: _in_memory(one) and not _in_memory(other),
        "the read models end with the process, and each start reads all events again",
        "name a database as read_models: sqlite:///FILE or postgresql://USER@HOST/DATABASE"),
    Clash("run.broker", "broker.tls_certificate",
        lambda one, other: bool(one) and not is_kafka(one) and (other is not None) != _speaks_tls(one),
        "one side speaks TLS and the other does not",
        "write the address as tls://HOST:PORT if the broker has a certificate, and without tls:// if it has none", fails=True),
    Clash("run.broker", "broker.login",
        lambda one, other: bool(one) and not is_kafka(one) and other and "user=" not in one and not _speaks_tls(one),
        "the broker asks for a login, and the address names no user",
        "set HEADRACE_USER and HEADRACE_PASSWORD_FILE, or add user=NAME&password_file=FILE to the address", fails=True),
    Clash("http.streams_max", "http.requests_max", _above,
        "event streams may take all places of requests",
        "set streams_max to half of requests_max"),
    Clash("http.connections_per_address_max", "http.connections_max", _above,
        "one address may take all connections",
        "set connections_per_address_max to a part of connections_max, or to the same behind a proxy"),
    Clash("http.requests_max", "http.connections_max", _above,
        "there are never as many requests, because each has a connection",
        "set connections_max to some times requests_max"),
    Clash("http.host", "http.tls_certificate",
        lambda one, other: not is_loopback(one) and other is None,
        "other machines reach the gateway, and it has no TLS, so it does not start",
        "set tls_certificate and tls_key, or insecure=true behind a proxy with TLS",
        fails=True, unless=("http.insecure",)),
    Clash("http.host", "http.tokens",
        lambda one, other: not is_loopback(one) and other is None,
        "other machines reach the gateway, and it asks for no tokens, so it does not start",
        "set tokens or jwks_url, or insecure=true behind a proxy that knows its clients",
        fails=True, unless=("http.insecure", "http.jwks_url")),
    Clash("http.insecure", "http.tls_certificate",
        lambda one, other: one and other is not None,
        "the gateway speaks TLS, so all that insecure does is to let clients in without a token",
        "set tokens or jwks_url, and leave insecure out"),
    Clash("http.insecure", "http.host",
        lambda one, other: one and is_loopback(other),
        "only this machine reaches the gateway, so insecure does nothing, until host is changed",
        "leave insecure out"),
    Clash("run.metrics", "http.port", _same_port,
        "both listen on this port, and one of them cannot if they have the same host",
        "give metrics another port"),
    Clash("broker.metrics", "broker.port", _same_port,
        "both listen on this port, and one of them cannot if they have the same host",
        "give metrics another port"),
    Clash("http.stop_ms", "run.resource_close_ms",
        lambda one, other: one + other > _STOP_MS,
        "together they take longer than the 30 s after which an orchestrator kills a process",
        "set both to 10 s, or let the orchestrator wait longer"),
)  # fmt: skip


def contradictions(settings: DeploymentSettings) -> list[Finding]:
    """Returns a finding for each pair that contradicts itself; where none does, one that says so."""
    found = list(_clashing(settings))
    given = [name for name in settings._fields if getattr(settings, name) is not None]
    if found or not given:
        return found
    return [ok("settings", f"no two settings of {', '.join(given)} contradict each other")]


def _clashing(settings: DeploymentSettings) -> Iterator[Finding]:
    for each in CLASHES:
        parts = (each.one.partition(".")[0], each.other.partition(".")[0])
        if any(settings.part(part) is None for part in parts):
            continue
        if any(settings.value(name) for name in each.unless):
            continue
        one, other = settings.value(each.one), settings.value(each.other)
        if each.holds(one, other):
            says = failed if each.fails else warning
            names = f"{each.one}={shown(one)} and {each.other}={shown(other)}"
            yield says("settings", f"{names}: {each.means}", each.advice)
