"""
SET_QUOTA, SET_BACKLOG_LIMIT and their descriptions: what is allowed to whom. DESCRIBE_SETTINGS: what the broker was given.

Called by the dispatcher; uses the broker's `limits`, `quotas` and `backlogs`.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.groups.backlogs import POLICIES, Limit
from headrace_mq.broker.handlers.sessions import check_name
from headrace_mq.broker.quotas.quotas import QuotaTarget
from headrace_mq.broker.state import BrokerState
from headrace_mq.effective_settings import described
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import check_topic
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.limits import (
    CLIENT,
    NO_RATES,
    TOPIC,
    BacklogsAnswer,
    Quota,
    QuotasAnswer,
    SetBacklogLimit,
    SetQuota,
)

__all__ = [
    "describe_backlogs",
    "describe_quotas",
    "describe_settings",
    "set_backlog_limit",
    "set_quota",
]


def set_quota(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Sets a quota or takes it away, and answers all of them.

    Raises:
        InvalidArgument: there is no such kind, a value is out of its range, or there are too many.
        StoreFull: the disk is full.
    """
    request = decode(SetQuota, frame.body)
    if request.kind not in {CLIENT, TOPIC}:
        raise InvalidArgument(f"a quota is for a {CLIENT} or a {TOPIC}, not for {request.kind!r}")
    if request.kind == CLIENT:
        check_name(CLIENT, request.name)
    else:
        try:
            check_topic(request.name)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
    rates = request.rates
    if any(getattr(rates, name) < 0 for name in rates.__struct_fields__):
        raise InvalidArgument("a rate is at least 1 in a second, or 0 for no limit")
    state.limits.set_quota(
        QuotaTarget(request.kind, request.name), None if request.remove else request.rates
    )
    state.apply_limits()
    return _quotas(state)


def describe_quotas(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers all quotas, and whom they held up."""
    return _quotas(state)


def set_backlog_limit(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Sets how far behind a group may be, or takes that away, and answers all such limits.

    Raises:
        InvalidArgument: a value is out of its range, or there are too many limits.
        StoreFull: the disk is full.
    """
    request = decode(SetBacklogLimit, frame.body)
    check_name("group", request.group)
    limit = None
    if not request.remove:
        if request.policy not in POLICIES:
            raise InvalidArgument(
                f"{request.policy!r} is no policy; use one of {', '.join(POLICIES)}"
            )
        if request.messages_max < 1:
            raise InvalidArgument("a backlog limit is 1 message or more; remove it for no limit")
        limit = Limit(request.messages_max, request.policy)
    state.limits.set_backlog(request.group, limit)
    state.apply_limits()
    return (encode(BacklogsAnswer(state.backlogs.describe())),)


def describe_backlogs(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers how far behind groups may be, and are."""
    state.look_at_backlogs()
    return (encode(BacklogsAnswer(state.backlogs.describe())),)


def describe_settings(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers the broker's settings and what gave each."""
    return (encode(described(state.settings, state.sources)),)


def _quotas(state: BrokerState) -> tuple[bytes]:
    quotas = [
        Quota(kind, "", rates)
        for kind in (CLIENT, TOPIC)
        if (rates := state.quotas.rates(QuotaTarget(kind, ""))) != NO_RATES
    ]
    quotas += [Quota(*whose, rates) for whose, rates in sorted(state.limits.quotas.items())]
    throttled = state.quotas.throttled(state.clock.monotonic_ms())
    return (encode(QuotasAnswer(quotas, throttled)),)
