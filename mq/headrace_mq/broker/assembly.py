"""
How the parts of a broker call each other when messages come and segments go.

Used by `server`, which makes the parts. The parts do not know each other.
"""

import asyncio
import sys
from collections.abc import Collection, Sequence
from functools import partial

from headrace_mq._net.certificates import ServerCertificates, ServerFiles
from headrace_mq._net.ledger import Budgets
from headrace_mq._net.server import Connection, FrameServer, ServerLimits
from headrace_mq._runtime.checks import is_loopback
from headrace_mq._runtime.descriptors import in_use
from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.access.resources import JOURNAL_TOPICS, Action, Ask, ResourceKind
from headrace_mq.archive.archive import Archive
from headrace_mq.archive.archived_store import ARCHIVED_LOGS
from headrace_mq.broker.dispatcher import Dispatcher
from headrace_mq.broker.fetch.filter_workers.read_ahead import ReadAhead
from headrace_mq.broker.fetch.filter_workers.workers import FilterWorkers
from headrace_mq.broker.fetch.long_poll import LongPoll
from headrace_mq.broker.handlers.fetch import answer_nothing, serve_parked
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.quotas.throttle import Throttle
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.deletion import Deletion
from headrace_mq.broker.topics.topics import COMPACT
from headrace_mq.broker.users.audit import Audit, AuditLimits
from headrace_mq.broker.users.guard import Guard
from headrace_mq.broker.users.logins import Logins
from headrace_mq.broker.users.open_door import open_door
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.message_store import SegmentInfo

__all__ = [
    "certificates_of",
    "connect",
    "delete_archived",
    "deletion_of",
    "server_limits",
    "spare",
    "warn_of_reach",
]

# The log in which the schedule and the transactions keep their journals.
_JOURNALS = "transient"
# Of the audit of a broker without replicas: it keeps the last entries.
_AUDITED_ALONE = COMPACT

_ADMINISTERS = Ask(Action.ADMINISTER, ResourceKind.CLUSTER)

_log = get_logger(__name__)


def connect(state: BrokerState, workers: FilterWorkers | None, files: Files | None = None) -> None:
    """Joins the parts that call each other; without `workers` nothing is looked through elsewhere.

    Raises:
        DataCorrupt, FormatTooNew: the file of users cannot be used.
        MessageQueueError: login is on, and no one could administer the broker.
    """
    settings = state.settings
    users = users_file(settings.store.directory, files)
    if settings.login:
        _let_users_in(state, UserBook(users))
    elif why := open_door(users, settings.store.directory, login=False):
        _log.warning("the login is off", reason=why)
    if settings.keeps_audit:
        _guard(state)
    elif AUDIT_TOPIC in state.topics:  # of an earlier start
        state.topics.keep_audit(_AUDITED_ALONE)
    _warn_of_few_descriptors(state)
    state.server = FrameServer(
        server_limits(settings, state.descriptors.first_kept), Dispatcher(state), state.clock
    )
    state.long_poll = LongPoll(
        asyncio.get_running_loop(),
        parked_max=settings.parked_fetches_max,
        places_max=settings.parked_queues_max,
        serve=partial(serve_parked, state),
        expire=answer_nothing,
    )
    state.throttle = Throttle(
        asyncio.get_running_loop(),
        state.clock,
        wait_ms_max=settings.throttle_ms_max,
        held_max=settings.parked_fetches_max,
    )
    if workers is not None:
        state.ahead = ReadAhead(state.store, workers, state.long_poll.wake)
    state.apply_limits()
    state.store.on_visible = partial(_visible, state)


def server_limits(settings: BrokerSettings, descriptors_max: int = sys.maxsize) -> ServerLimits:
    """Returns what connections are granted.

    Args:
        settings: of the broker.
        descriptors_max: connections get none from this number on.
    """
    budgets = Budgets(*(getattr(settings, name) for name in Budgets._fields))
    if not settings.login:  # clients say HELLO at once, and many may start at a time
        most = budgets.connections_before_hello_max
        budgets = budgets._replace(connections_before_hello_per_address_max=most)
    return ServerLimits(
        budgets=budgets,
        descriptors_max=descriptors_max,
        frame_bytes_before_hello_max=settings.frame_bytes_before_hello_max,
        outgoing_bytes_max=settings.outgoing_bytes_max,
        # A client that says nothing at all is treated like a member that fell silent.
        hello_ms=_hello_ms(settings),
        frame_ms=settings.frame_ms_max,
        vanished_ms=settings.vanished_ms_max,
        busy_poll_us=settings.busy_poll_us,
    )


def _hello_ms(settings: BrokerSettings) -> int:
    expiry_ms = settings.member_expiry_ms
    return min(expiry_ms, settings.login_ms_max) if settings.login else expiry_ms


def _let_users_in(state: BrokerState, book: UserBook) -> None:
    """Has a broker serve users alone that have logged in."""
    book.load()
    if not book.has_admin:
        raise MessageQueueError(
            "with login on, a broker needs an administrator and this one has none: stop it, run `headrace user"
            f" add NAME --admin --data {state.settings.store.directory}`, and start it again"
        )
    # Clients make them with their first message; so they need no permission for that.
    for topic in JOURNAL_TOPICS:
        state.topics.create(CreateTopic(topic, 1))
    state.users = book
    now_ms = state.clock.monotonic_ms
    state.logins = Logins[Connection](
        book.credentials, lambda: book.secret, now_ms, book.public_key
    )


def _guard(state: BrokerState) -> None:
    """Has requests asked about, and keeps the audit."""
    settings = state.settings
    # In a group the oldest entries are forgotten by their age: it has one rule for all of them.
    retention = state.topics.keep_audit(_AUDITED_ALONE if state.followers is None else "transient")
    limits = AuditLimits(
        entries_max=settings.audit_entries_max,
        per_second_max=settings.audit_per_second_max,
        refusals_per_minute_max=settings.audit_refusals_per_minute_max,
        retention=retention,
    )

    def administers(connection: Connection) -> bool:
        return state.users is None or state.users.policy.grants(connection.user).allows(
            _ADMINISTERS
        )

    def is_user(name: str) -> bool:
        return state.users is not None and name in state.users.policy.users

    state.audit = Audit(
        state.store, state.clock, limits, lambda: state.watermarks.is_closed, administers, is_user
    )

    def queues_of(topic: str) -> int:
        return len(state.topics.queues_of(topic)) if topic in state.topics else 0

    state.guard = Guard(state.users, queues_of, state.audit)


def certificates_of(settings: BrokerSettings) -> ServerCertificates | None:
    """Reads the certificates with which a broker speaks TLS; None: it does not.

    Raises:
        MessageQueueError: a file cannot be used.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    files = ServerFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    return ServerCertificates(files)


def warn_of_reach(settings: BrokerSettings, address: str) -> None:
    """Says once who may do everything here, where other machines may."""
    secured = settings.tls_certificate is not None
    if is_loopback(settings.host) or settings.tls_client_ca is not None:
        return
    if settings.login:
        if not secured:
            _log.warning(
                "other machines reach this broker without TLS: passwords are not sent, but everyone on the way"
                " reads and changes what users send after their login; use TLS",
                address=address,
            )
        return
    if settings.insecure and not secured:
        _log.warning(
            "other machines reach this broker without TLS, and its login is off: they may read, send and"
            " delete everything, and so may everyone on the way; let a firewall decide who gets here",
            address=address,
        )
    else:
        _log.warning(
            "the login of this broker is off: each client that reaches it may read, send and delete everything;"
            " switch it on (--login), ask for client certificates with tls_client_ca, or let a firewall decide who gets here",
            address=address,
        )


def _warn_of_few_descriptors(state: BrokerState) -> None:
    limit, kept = state.descriptors
    left = limit - kept - in_use()
    if left < state.settings.connections_max:
        _log.warning(
            "the system grants too few open files for all connections: raise the limit of this process"
            " (LimitNOFILE, ulimit -n), or lower connections_max",
            open_files_max=limit, kept_for_files=kept, connections=max(0, left),
            connections_max=state.settings.connections_max,
        )  # fmt: skip


def spare(state: BrokerState, segments: Sequence[SegmentInfo], before: int) -> int:
    """Lowers the log position before which segments go to what the broker itself still needs."""
    if state.archive is not None:
        before = min(before, state.archive.position("transient"))
    return state.transactions.spare(segments, state.scheduler.spare(segments, before))


def deletion_of(state: BrokerState) -> Deletion:
    """Makes what deletes segments of the transient log."""
    return Deletion(
        state.store,
        state.settings.store,
        timeline=state.clock.timeline,
        consumed=state.consumed,
        early=lambda: state.watermarks.early,
        spare=partial(spare, state),
    )


def delete_archived(state: BrokerState, archive: Archive) -> None:
    """Deletes segments that the archive has and the window has no room for."""
    for log in ARCHIVED_LOGS:
        before = archive.beyond_window(log)
        if log == _JOURNALS:
            before = spare(state, state.store.segments(log), before)
        if deleted := state.store.delete_segments(log, before):
            _log.info("archived segments deleted", log=log, segments=deleted, before=before)


def _visible(state: BrokerState, queues: Collection[QueueRef]) -> None:
    """Tells everyone who waits for new messages in one of the queues."""
    if SCHEDULE_QUEUE in queues:
        state.scheduler.journal_grew()
    if TRANSACTION_QUEUE in queues:
        state.transactions.journal_grew()
    state.long_poll.serve(queues)
    if state.limited:
        state.look_at_backlogs()
