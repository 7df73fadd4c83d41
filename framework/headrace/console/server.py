"""
Serves the console on a socket: uvicorn, in this event loop.

Used by `headrace console`. It refuses an address that other machines reach unless it speaks TLS and the broker asks each
person to log in, as the gateway refuses one without tokens.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.console.console import Console
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.cluster import ClusterVerbs
from headrace.console.verbs.command import DiagnosticsBundle
from headrace.errors import HeadraceError
from headrace.gateway.server import Listening, listening
from headrace_mq._net.address import BrokerAddress
from headrace_mq._runtime.checks import is_loopback
from headrace_mq.errors import MessageQueueError

__all__ = ["serving_console"]


@asynccontextmanager
async def serving_console(
    broker: str,
    settings: ConsoleSettings | None = None,
    application: ApplicationVerbs | None = None,
    cluster: ClusterVerbs | None = None,
    alarms: AlarmVerbs | None = None,
    bundle: DiagnosticsBundle | None = None,
) -> AsyncIterator[Listening]:
    """Serves a console of a broker until the block ends.

    Args:
        broker: its address; a user that it names is left out: each person signs in.
        settings: where to listen, and every limit.
        application: what can be asked of an application besides; None: nothing.
        cluster: what can be asked of the group of brokers besides; None: nothing.
        alarms: what can be asked of a watcher of alarms besides; None: nothing.
        bundle: makes one for those who help; None: there is none.

    Raises:
        SchemaOutOfDate: the application has no database, or one of another version.
        HeadraceError: the address cannot be had, or is not safe enough; the sentence says what to do.
    """
    settings = settings or ConsoleSettings()
    async with Sessions(BrokerAddress.parse(broker), settings) as sessions:
        await _require_safe(sessions, settings)
        if application is not None:
            await application.check()
        more = {
            **(application.verbs if application else {}),
            **(cluster.verbs if cluster else {}),
            **({**alarms.verbs, **alarms.services} if alarms else {}),
        }
        console = Console(sessions, settings, more, bundle)
        async with listening(console, settings.listening, stop=console.stop) as served:
            yield served


async def _require_safe(sessions: Sessions, settings: ConsoleSettings) -> None:
    if settings.insecure or is_loopback(settings.host):
        return
    if settings.certificate is None:
        raise HeadraceError(
            f"other machines reach {settings.host}, and everyone on the way could read passwords and messages: name"
            " --certificate and --key (`headrace certificates make DIR` makes some to try it out), or --insecure"
            " behind a proxy with TLS"
        )
    try:
        asks = await sessions.asks_login()
    except MessageQueueError as error:
        raise HeadraceError(
            f"{error}; the console must know whether the broker asks for a login before it serves {settings.host}"
        ) from error
    if not asks:
        raise HeadraceError(
            f"other machines reach {settings.host}, and everyone there could change everything, because the broker"
            " asks for no login: start it with --login, or say --insecure behind a proxy that knows its users"
        )
