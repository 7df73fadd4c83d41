"""
The whole of `headrace doctor`: looks at every part of a deployment, and gathers the findings.

    settings │ versions │ broker, group │ certificates, files │ databases │ application      in this order

A part that does not answer is a finding, and the others are looked at all the same. Used by the command.
"""

import asyncio
import os
from collections.abc import Awaitable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headrace.cli.doctor import (
    application_look,
    application_rules,
    broker_look,
    broker_rules,
    cluster_rules,
    machine_look,
    machine_rules,
)
from headrace.cli.doctor.contradictions import contradictions
from headrace.cli.doctor.findings import Finding, of_sentence, ok, shown
from headrace.cli.doctor.given import GivenSettings
from headrace.cli.sentences import sentence_of
from headrace.domain.topics import command_topic
from headrace.errors import HeadraceError
from headrace.events.publisher import event_topic
from headrace.transports.kafka.address import is_kafka
from headrace_mq._net.address import BrokerAddress

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["PART_S", "ExaminedGroup", "Limits", "examine", "said_of"]

# One part may take so long; what takes longer does not answer.
PART_S: Final = 30
_KAFKA_MS: Final = 5_000
# What the settings of an application have databases for.
_DATABASES: Final = {"event_store": "event store", "read_models": "read models"}

T = TypeVar("T")


class Limits(NamedTuple):
    """From where on something is a warning.

    Attributes:
        clock_ms: difference of two clocks.
        disk_days: fewer days until a disk is full.
        certificate_days: fewer days until a certificate ends.
    """

    clock_ms: int = broker_rules.CLOCK_MS
    disk_days: int = machine_rules.DISK_DAYS
    certificate_days: int = machine_rules.CERTIFICATE_DAYS


class ExaminedGroup(NamedTuple):
    """The group of brokers to look at: the database of its record, its cluster, its name."""

    record: str
    cluster: str
    name: str


async def examine(
    given: GivenSettings,
    *,
    app_path: str,
    databases: Collection[str],
    group: ExaminedGroup | None,
    limits: Limits,
) -> list[Finding]:
    """Looks at a deployment, changes nothing, and returns the findings.

    Args:
        given: the settings.
        app_path: of the application, MODULE:ATTRIBUTE; empty: none is looked at.
        databases: which to look at without an application, too: `event_store`, `read_models`.
        group: of brokers; None: none was named.
        limits: from where on something is a warning.
    """
    examination = _Examination(given, limits, databases)
    app = examination.load(app_path) if app_path else None
    machine, of_broker, of_group, of_files = await asyncio.gather(
        asyncio.to_thread(machine_look.look_at_machine),
        examination.broker(),
        examination.group(group) if group else _nothing(),
        examination.files(),
    )
    # After the broker: what a database needs takes long to load, and a connection would wait for that.
    stores = await examination.databases()
    software = examination.software
    return [
        *given.findings,
        *contradictions(given.settings),
        *machine_rules.versions(machine, software),
        *of_broker,
        *of_group,
        *of_files,
        *stores,
        *(examination.findings),
        *(await examination.application(app) if app is not None else ()),
    ]


async def _nothing() -> list[Finding]:
    return []


class _Examination:
    """One look at a deployment.

    Attributes:
        findings: about the application as such.
        software: what the broker calls itself; None: it was not asked.
    """

    def __init__(self, given: GivenSettings, limits: Limits, databases: Collection[str]) -> None:
        self._databases = frozenset(databases)
        self._given, self._run, self._limits = given, given.run, limits
        self._facts = broker_rules.BrokerFacts()
        self._serves = False
        self._sound: set[str] = set()
        self._address: BrokerAddress | None = None
        self.findings: list[Finding] = []
        self.software: str | None = None

    def load(self, path: str) -> "App | None":
        """Imports the application, which has both databases; None, with a finding, where that cannot be done."""
        from headrace.app import load_app

        try:
            app = load_app(path)
        except HeadraceError as error:
            self.findings.append(of_sentence("failed", "application", str(error)))
            return None
        self._databases = frozenset(_DATABASES)
        return app

    async def broker(self) -> list[Finding]:
        """Looks at the broker."""
        address = self._run.broker or ""
        if is_kafka(address):
            return await self._kafka(address)
        try:
            parsed = BrokerAddress.parse(address)
        except ValueError as error:
            # It may have a secret in it, also where no scheme says that it is an address.
            text = shown(address if "://" in address else f"tcp://{address}").removeprefix("tcp://")
            return [of_sentence("failed", f"broker {text}", str(error), "correct the address")]
        self._address, servers = await broker_look.look_at_names(parsed)
        answers = await broker_look.look_at_places(self._address)
        found = [*broker_rules.names(servers), *broker_rules.places(answers)]
        self._serves = any(each.kind == "leads" for each in answers)
        if self._serves:
            said = await self._part("broker", broker_look.look_at_broker(parsed), found)
            self._facts = said or self._facts
        return found + list(self._of_facts())

    def _of_facts(self) -> Iterator[Finding]:
        facts = self._facts
        yield from broker_rules.clock(facts, self._limits.clock_ms)
        yield from broker_rules.health(facts)
        if facts.status is not None:
            self.software = facts.status.process[0].software if facts.status.process else ""
        for process in facts.status.process if facts.status is not None else ():
            yield machine_rules.disk(
                machine_rules.DiskFacts(
                    "the broker", process.disk_bytes, process.disk_free_bytes,
                    broker_rules.grows_per_day(facts), process.refuse_percent,
                ),
                self._limits.disk_days,
            )  # fmt: skip
        yield from broker_rules.groups(
            facts, messages_max=self._run.lag_messages_max, ms_max=self._run.lag_ms_max
        )

    async def _kafka(self, address: str) -> list[Finding]:
        from headrace.transports.open import require_broker

        found: list[Finding] = []
        name = "Kafka cluster"
        asked = require_broker(address, within_ms=_KAFKA_MS)
        self._serves = await self._part(name, _true(asked), found) is not None
        if self._serves:
            found.append(
                ok(name, "it answers; look at its topics and groups with Kafka's own tools")
            )
        return found

    async def group(self, group: ExaminedGroup) -> list[Finding]:
        """Looks at a group of brokers."""
        address = self._run.broker or ""
        settings = self._given.settings.part("group")
        try:
            # The places that name servers told, if there are any.
            parsed = self._address or BrokerAddress.parse(address)
        except ValueError:
            return []  # said of the broker already
        found: list[Finding] = []
        looking = broker_look.look_at_cluster(
            group.record, parsed, cluster=group.cluster, group=group.name,
            min_in_sync=1 if settings is None else settings.min_in_sync,
        )  # fmt: skip
        facts = await self._part("record of the group", looking, found)
        return found if facts is None else list(cluster_rules.cluster(facts))

    async def files(self) -> list[Finding]:
        """Looks at certificates, keys, passwords and folders."""
        servers = [] if self._tls is None else self._tls.places
        of_servers = await asyncio.gather(*(machine_look.look_at_server(*one) for one in servers))
        named = list(self._certificates()) + [one for one in of_servers if one is not None]
        now = datetime.now(UTC)
        found = list(machine_rules.certificates(named, now, self._limits.certificate_days))
        if os.name == "posix":
            looking = asyncio.to_thread(lambda: list(self._modes()))
            modes = await self._part("modes of files", looking, found)
            found += machine_rules.modes(one for one in modes or () if one is not None)
        return found

    @property
    def _tls(self) -> BrokerAddress | None:
        try:
            parsed = BrokerAddress.parse(self._run.broker or "")
        except ValueError:
            return None
        return parsed if parsed.tls is not None else None

    def _certificates(self) -> Iterator[machine_rules.CertificateFacts]:
        look = machine_look.look_at_certificate
        for whose, part in (("broker", "broker"), ("gateway", "http")):
            settings = self._given.settings.part(part)
            if settings is not None and settings.tls_certificate is not None:
                yield look(f"certificate of the {whose}", settings.tls_certificate)
        broker = self._given.settings.broker
        if broker is not None and broker.tls_client_ca is not None:
            yield look("authorities of clients", broker.tls_client_ca, authorities=True)
        client = self._tls.tls if self._tls else None
        if client is not None and client.ca is not None:
            yield look("authorities of the broker", client.ca, authorities=True)
        if client is not None and client.certificate is not None:
            yield look("certificate of this client", client.certificate)

    def _modes(self) -> Iterator[machine_rules.FileFacts | None]:
        settings = self._given.settings
        for whose, part in (("broker", settings.broker), ("gateway", settings.http)):
            if part is not None and part.tls_key is not None:
                yield machine_look.look_at_secret(f"the {whose}'s key", part.tls_key)
        try:
            address = BrokerAddress.parse(self._run.broker or "")
        except ValueError:
            address = None
        if address is not None and address.tls is not None and address.tls.key is not None:
            yield machine_look.look_at_secret("this client's key", address.tls.key)
        if address is not None and address.login is not None:
            yield machine_look.look_at_secret("the password", address.login.password_file)
        if settings.http is not None and settings.http.tokens is not None:
            yield machine_look.look_at_folder("the gateway's tokens", settings.http.tokens)
        if self._given.data is not None:
            yield machine_look.look_at_folder("the broker's folder", self._given.data)
        for what, url in self._urls():
            if url.startswith("sqlite:///"):
                yield machine_look.look_at_folder(what, Path(url.removeprefix("sqlite:///")))

    def _urls(self) -> list[tuple[str, str]]:
        """Returns the databases to look at, each with what it holds; one that holds both stands once."""
        found: dict[str, list[str]] = {}
        for setting, what in _DATABASES.items():
            if setting in self._databases:
                found.setdefault(getattr(self._run, setting), []).append(what)
        return [(" and ".join(held), url) for url, held in found.items()]

    async def databases(self) -> list[Finding]:
        """Looks at the databases that were named or an application has, and at the broker's archive."""
        urls = [(what, url, False) for what, url in self._urls()]
        archive = self._given.settings.part("archive")
        if archive is not None:
            urls.append(("archive", archive.url, True))
        facts = await asyncio.gather(*(self._database(*one) for one in urls))
        found = list(application_rules.databases(facts))
        self._sound = {url for (_, url, _), one in zip(urls, facts, strict=True) if not one.trouble}
        url = self._run.event_store
        if url in self._sound and url.startswith("sqlite:///"):
            room = await self._part(
                "disk of the event store",
                application_look.look_at_disk("the event store", url),
                found,
            )
            if room is not None:
                found.append(machine_rules.disk(room, self._limits.disk_days))
        return found

    async def _database(
        self, what: str, url: str, archive: bool
    ) -> application_rules.DatabaseFacts:
        try:
            async with asyncio.timeout(PART_S):
                return await application_look.look_at_database(what, url, archive=archive)
        except Exception as error:  # noqa: BLE001 - any error means that the database cannot be used
            return application_rules.DatabaseFacts(what, said_of(error))

    async def application(self, app: "App") -> list[Finding]:
        """Compares the application with the broker, and looks at what it has parked and projected."""
        found: list[Finding] = []
        run = self._run
        try:
            declared = application_look.declared_topics(app, run)
            found.append(ok("application", f"{app.name} can be loaded"))
        except HeadraceError as error:
            return [of_sentence("failed", "application", str(error), "correct it")]
        found += broker_rules.service(self._facts, app.name, command_topic(app.name))
        found += broker_rules.topics(self._facts, app.name, declared)
        if not {run.event_store, run.read_models} <= self._sound:
            return found
        letters = await self._part("parked", application_look.look_at_parked(run), found)
        found += application_rules.parked(
            letters or [], count_min=run.letters_alarm_count, ms_max=run.letters_alarm_age_ms
        )
        if self._serves and self._has_events(app):
            look = application_look.look_at_projections(app, run)
            standing = await self._part("projections", look, found)
            if standing is not None:
                found += application_rules.projections(
                    standing.lags, standing.without_tables,
                    messages_max=run.lag_messages_max, ms_max=run.lag_ms_max,
                )  # fmt: skip
        return found

    def _has_events(self, app: "App") -> bool:
        """Whether the event topic is there; of a Kafka cluster that is seen when it is read."""
        if self._address is None:
            return True
        return any(one.topic == event_topic(app.name) for one in self._facts.topics or ())

    async def _part(self, name: str, looking: Awaitable[T], found: list[Finding]) -> T | None:
        """Returns what a look found; None, with a finding, where it cannot be done."""
        try:
            async with asyncio.timeout(PART_S):
                return await looking
        except Exception as error:  # noqa: BLE001 - any error means that the part cannot be used
            found.append(of_sentence("failed", name, said_of(error), "check that it runs"))
            return None


async def _true(asked: Awaitable[Any]) -> bool:
    await asked
    return True


def said_of(error: Exception) -> str:
    """Returns the sentence of an error of one part of a deployment."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"it does not answer within {PART_S} s; check that it runs"
    return sentence_of(error) or f"{type(error).__name__}: {error}"
