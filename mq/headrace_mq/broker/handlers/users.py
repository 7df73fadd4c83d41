"""
LOGIN, and what administrators ask of users and rules.

SET_USER, SET_PASSWORD, LIST_USERS, SET_RULE, LIST_RULES and EXPLAIN_ACCESS. A change takes effect with the next
request of every connection; those of a user that may not be there any more are closed.

Called by the dispatcher; uses the broker's users.
"""

import asyncio

from headrace_mq._net.server import Connection
from headrace_mq.access.resources import Action, Ask, Pattern, ResourceKind, owned
from headrace_mq.access.users import ROLE_PREFIX
from headrace_mq.broker.handlers.sessions import enter
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.users.audit import Audit
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import InvalidArgument, LoginFailed, NameTaken, NotPermitted, Throttled
from headrace_mq.protocol.access import (
    AS_IT_IS,
    ED25519,
    ExplainAccess,
    Explanation,
    ListRules,
    Login,
    RulesAnswer,
    SetPassword,
    SetRule,
    SetUser,
    UserEntry,
    UsersAnswer,
)
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame

__all__ = [
    "explain_access",
    "list_rules",
    "list_users",
    "login",
    "set_password",
    "set_rule",
    "set_user",
]


def login(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Takes the next message of a login; with the last one the client is let in.

    Raises:
        InvalidArgument: this broker has no login, or does not know its mechanism.
        LoginFailed: name and password do not fit, or the name is locked for this address.
    """
    _book(state)
    assert state.logins is not None
    audit = _audit(state)
    if connection.user:
        raise InvalidArgument("this connection is logged in; open another one for another user")
    request = decode(Login, frame.body)
    try:
        found = state.logins.step(connection, connection.host, request)
        if found.user:
            enter(state, connection, found.user)
    except (InvalidArgument, LoginFailed, NameTaken) as error:
        named = state.logins.named
        resource = f"user:{named}" if named else ""
        audit.note(connection, "login", "failed", resource=resource, detail=str(error))
        raise
    if found.user:
        proof = "with a key" if request.mechanism == ED25519 else "with a password"
        audit.note(connection, "login", "done", resource=f"user:{found.user}", detail=proof)
    return (encode(found.answer),)


def set_user(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Adds, changes or removes a user.

    Raises:
        InvalidArgument: there is one of the name, or none, or a value is out of its range.
        NotPermitted: it is about an administrator, and the client is none.
        StoreFull: the disk is full.
    """
    book, request = _book(state), decode(SetUser, frame.body)
    mine, theirs = (book.policy.users.get(one) for one in (connection.user, request.name))
    touches_admin = request.admin == 1 or (theirs is not None and theirs.is_admin)
    changes = [
        *(["password"] if request.credentials else []),
        *(["key"] if request.keys else []),
        *([f"roles={','.join(request.roles)}"] if request.set_roles else []),
        *(
            f"{name}={value}"
            for name in ("admin", "disabled")
            if (value := getattr(request, name)) != AS_IT_IS
        ),
    ]
    with _audit(state).noting(
        connection,
        "set_user",
        resource=f"user:{request.name}",
        detail=" ".join([request.kind, *changes]),
    ):
        if touches_admin and not (mine is not None and mine.is_admin):
            raise NotPermitted("only an administrator makes, changes or removes administrators")
        entry = book.change(request)
    ended = request.kind == "remove" or entry.disabled or bool(request.credentials or request.keys)
    _take_effect(state, connection, request.name if ended else "")
    return (encode(UsersAnswer([entry])),)


def set_password(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Changes a password: each user its own, and administrators those of all.

    Raises:
        InvalidArgument: there is no such user, or a value is out of its range.
        NotPermitted: it is the password of another user.
        StoreFull: the disk is full.
    """
    book, request = _book(state), decode(SetPassword, frame.body)
    if request.name != connection.user:
        assert state.guard is not None
        ask = Ask(Action.ADMINISTER, ResourceKind.CLUSTER)
        state.guard.require(connection, ask, RequestCode.SET_PASSWORD)
        return set_user(
            state, connection,
            frame._replace(body=memoryview(encode(SetUser("change", request.name, [request.credentials])))),
        )  # fmt: skip
    if book.credentials(request.name) is None:
        raise InvalidArgument(
            f"{request.name!r} logs in without a password; an administrator may give it one"
        )
    with _audit(state).noting(
        connection, "set_password", resource=f"user:{request.name}", detail="its own"
    ):
        entry: UserEntry = book.set_password(request.name, request.credentials)
    _take_effect(state, connection, request.name)
    return (encode(UsersAnswer([entry])),)


def list_users(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers all users, without what they prove themselves by. Raises InvalidArgument: no login."""
    return (encode(UsersAnswer(_book(state).users())),)


def set_rule(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Sets a rule or takes it away, and answers those of its subject.

    Raises:
        InvalidArgument: it has no meaning, there is no such user or rule, or there are too many.
        StoreFull: the disk is full.
    """
    request = decode(SetRule, frame.body)
    words = request.rule
    rule = f"{'allow' if words.allows else 'deny'} {words.action} {words.resource}"
    book, is_role = _book(state), words.subject.startswith(ROLE_PREFIX)
    with _audit(state).noting(
        connection,
        "set_rule",
        resource=words.subject if is_role else f"user:{words.subject}",
        detail=f"remove {rule}" if request.remove else rule,
    ):
        rules = book.set_rule(words, remove=request.remove)
    _take_effect(state, connection, "")
    return (encode(RulesAnswer(rules)),)


def list_rules(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers the rules of one subject, or all. Raises InvalidArgument: no login."""
    return (encode(RulesAnswer(_book(state).rules(decode(ListRules, frame.body).subject))),)


def explain_access(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers whether a user may do something, and which rule decided; an empty name is that of the client's own user.

    Raises:
        InvalidArgument: a word has no meaning.
        NotPermitted: it is about another user.
    """
    request = decode(ExplainAccess, frame.body)
    if not request.user and state.users is None:
        return (encode(Explanation(allowed=True, reason="this broker has no login")),)
    book = _book(state)
    if request.user not in {"", connection.user}:
        assert state.guard is not None
        ask = Ask(Action.ADMINISTER, ResourceKind.CLUSTER)
        state.guard.require(connection, ask, RequestCode.EXPLAIN_ACCESS)
    if request.action not in list(Action):
        raise InvalidArgument(f"an action is one of {', '.join(Action)}, not {request.action!r}")
    kind, name, is_prefix = Pattern.parse(request.resource)
    if is_prefix and name:
        raise InvalidArgument(
            f"ask about one resource, or about all with {kind}:*, not about {request.resource!r}"
        )
    ask = owned(Ask(Action(request.action), kind, name))
    ruling = book.policy.grants(request.user or connection.user).explain(ask)
    rule = "" if ruling.rule is None else str(ruling.rule)
    return (encode(Explanation(ruling.allowed, ruling.reason, rule)),)


def _book(state: BrokerState) -> UserBook:
    if state.users is None:
        raise InvalidArgument(
            "this broker has no login, and so no users; start it with --login (`headrace user add NAME --admin"
            " --data FOLDER` makes the first one)"
        )
    return state.users


def _audit(state: BrokerState) -> Audit:
    assert state.audit is not None  # each broker with a login has one
    return state.audit


def _take_effect(state: BrokerState, asker: Connection, ended: str) -> None:
    """Has requests that wait for a quota asked again, and closes the other connections of a user.

    Fetches that wait for messages are asked about when they are woken.
    """
    state.throttle.release(Throttled("permissions have changed; send the request again"))
    for connection in list(state.server.connections):
        if ended and connection.user == ended and connection is not asker:
            asyncio.get_running_loop().call_soon(connection.close)
