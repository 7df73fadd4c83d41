"""
The pages: each shows the answer of one verb, and each change is asked about before it is done.

    GET  /topics, /groups, …    the answer of a verb that only reads
    POST /do/group/reset        what it would change, in words, with a button
    POST /do/group/reset        with `confirmed`: does it, and leads to the page that says what was done
    GET  /change?number=7       what was done, or how far a change is that takes long

Used by `console`, which has the routes; uses the verbs and the templates.
"""

import base64
import secrets
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.console.changes import BegunChange, BegunChanges
from headrace.console.html import page, pretty
from headrace.console.problems import Mistake, problem_of
from headrace.console.safety import Safety
from headrace.console.sessions import Session, Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.catalogue import verb_at
from headrace.console.verbs.command import DiagnosticsBundle
from headrace.console.verbs.message import letters_kept
from headrace.console.verbs.verb import Verb, VerbField, values_of
from headrace.console.words import language_of
from headrace.gateway.problems import Problem
from headrace_mq.client.retry_headers import DEAD_LETTER_PREFIX
from headrace_mq.errors import MessageQueueError

__all__ = ["PAGES", "ConsolePage", "ConsolePages"]


class ConsolePage(NamedTuple):
    """A page: its template, the verb whose answer it shows, and whether it is a form until a field is filled in."""

    template: str
    verb: str
    tab: str
    form: bool = False


PAGES: Final[Mapping[str, ConsolePage]] = {
    "/": ConsolePage("overview.html", "broker show", "overview"),
    "/connections": ConsolePage("connections.html", "broker connections", "overview"),
    "/config": ConsolePage("config.html", "config show", "overview"),
    "/services": ConsolePage("services.html", "config services", "overview"),
    "/topics": ConsolePage("topics.html", "topic list", "topics"),
    "/topic": ConsolePage("topic.html", "topic show", "topics"),
    "/groups": ConsolePage("groups.html", "group list", "groups"),
    "/group": ConsolePage("group.html", "group show", "groups"),
    "/message": ConsolePage("message.html", "message show", "messages"),
    "/trace": ConsolePage("trace.html", "message trace", "messages", form=True),
    "/dead": ConsolePage("dead.html", "message dead", "letters"),
    "/commands": ConsolePage("commands.html", "command list", "commands"),
    "/command": ConsolePage("command.html", "command show", "commands"),
    "/results": ConsolePage("outcomes.html", "command results", "commands"),
    "/aggregates": ConsolePage("aggregates.html", "aggregate list", "aggregates"),
    "/aggregate": ConsolePage("aggregate.html", "stream show", "aggregates"),
    "/state": ConsolePage("state.html", "aggregate show", "aggregates"),
    "/difference": ConsolePage("difference.html", "aggregate compare", "aggregates"),
    "/cluster": ConsolePage("cluster.html", "cluster status", "cluster"),
    "/projections": ConsolePage("projections.html", "projection list", "projections"),
    "/projection": ConsolePage("projection.html", "projection status", "projections"),
    "/processes": ConsolePage("processes.html", "process list", "processes"),
    "/process": ConsolePage("process.html", "process show", "processes"),
    "/parked": ConsolePage("parked.html", "parked list", "parked"),
    "/producers": ConsolePage("producers.html", "producer list", "producers"),
    "/users": ConsolePage("users.html", "user list", "users"),
    "/rules": ConsolePage("rules.html", "acl list", "users"),
    "/explain": ConsolePage("explain.html", "acl explain", "users"),
    "/alarms": ConsolePage("alarms.html", "alarms list", "alarms"),
    "/audit": ConsolePage("audit.html", "audit list", "audit"),
}
# A form with a box for each of a thousand dead letters, and some fields more.
_FIELDS_MAX: Final = 1_100
_ONCE_BYTES: Final = 16


class ConsolePages:
    """What browsers get.

    Args:
        sessions: who has signed in.
        safety: cookies and tokens.
        settings: the limits.
        verbs: what can be asked and done.
        changes: those that go on.
        bundle: makes one for those who help; None: there is none.
    """

    def __init__(
        self,
        sessions: Sessions,
        safety: Safety,
        settings: ConsoleSettings,
        verbs: Mapping[str, Verb],
        changes: BegunChanges,
        bundle: DiagnosticsBundle | None = None,
    ) -> None:
        self._bundle = bundle
        self._sessions = sessions
        self._safety = safety
        self._settings = settings
        self._verbs = verbs
        self._tabs = {"/letters", "/messages"} | {
            path for path, one in PAGES.items() if one.verb in verbs
        }
        self._changes = changes

    async def show(self, request: Request) -> Response:
        """Answers a GET of one of `PAGES`."""
        shown = PAGES[request.url.path]
        verb = "" if shown.form and not _filled(request.query_params) else shown.verb
        return await self._answer(request, shown.template, verb, shown.tab, {})

    async def letters(self, request: Request) -> Response:
        """Answers with the groups that have dead letters."""
        asked = {"search": DEAD_LETTER_PREFIX, "system": "1"}
        return await self._answer(
            request, "letters.html", "topic list", "letters", asked, with_letters=True
        )

    async def messages(self, request: Request) -> Response:
        """Answers with the form of the search, and with what was found."""
        given = _filled(request.query_params)
        if "id" in given or {"topic", "queue", "offset"} <= given.keys():
            name = given.get("id") or ":".join(given[each] for each in ("topic", "queue", "offset"))
            return RedirectResponse(str(request.url.replace(path="/message", query="").include_query_params(id=name)), 303)  # fmt: skip
        if "topic" not in given:
            return await self._answer(request, "messages.html", "", "messages", {})
        verb = "message tail"
        if "filter" in given and given.get("how") != "tail":
            verb = "message search"
        elif "key" in given:
            verb = "message find"
        elif "since" in given:
            verb = "message list"
        kept = {each.name for each in self._verbs[verb].fields}
        asked = {name: each for name, each in given.items() if name in kept}
        return await self._answer(request, "messages.html", verb, "messages", asked)

    async def change(self, request: Request) -> Response:
        """Answers a form: says what it would change, or does it once that is confirmed."""
        session = await self._session(request)
        if session is None:
            return _to_sign_in()
        form = await self._form(request)
        self._safety.check(request, form.pop("token", ""))
        confirmed, back = form.pop("confirmed", ""), _local(form.pop("back", "/"))
        once = form.pop("once", "")
        verb = verb_at(self._verbs, request.path_params["noun"], request.path_params["verb"])
        if verb.look_ahead is None:
            raise Mistake(f"{verb.name} changes nothing; use /api/{verb.path}")
        # Forms send lines with CRLF. A body may be empty; an empty box of another kind was not filled in.
        bodies = {one.name for one in verb.fields if one.kind == "body"} & form.keys()
        given = values_of(
            verb, _filled(form) | {name: form[name].replace("\r\n", "\n") for name in bodies}
        )
        if not confirmed:
            async with self._sessions.asking(session):
                ahead = await verb.look_ahead(session.admin, given)
            secret = {one.name for one in verb.fields if one.kind == "secret"}
            shown = {name: each for name, each in form.items() if name not in secret}
            shown |= {name: str(each) for name, each in ahead.confirmed.items()}
            # A double click, or a page that is loaded again, sends the form twice.
            shown["once"] = secrets.token_urlsafe(_ONCE_BYTES)
            context = {"verb": verb, "ahead": ahead, "form": shown, "back": back}
            return self.render(request, session, "confirm.html", "", context)
        begun = self._changes.start(session, verb, given, back, once=once)
        await begun.ends_within(self._settings.change_wait_ms)
        # A page that is loaded again asks what was done, and does not send the form again.
        return RedirectResponse(f"/change?number={begun.number}", 303)

    async def going_on(self, request: Request) -> Response:
        """Says how far a change is, or what was done."""
        session = await self._session(request)
        if session is None:
            return _to_sign_in()
        number = VerbField("number", "number").read(request.query_params.get("number"))
        change = self._changes.find(session, number)
        if not change.under_way:
            return await self._ended(request, session, change)
        context = {
            "change": change,
            "so_far": self._sessions.plain(change.so_far),
            "seconds": self._changes.seconds(change),
        }
        return self.render(request, session, "change.html", "", context)

    async def _ended(self, request: Request, session: Session, change: BegunChange) -> Response:
        async with self._sessions.asking(session):
            answer = change.result()
        told = self._sessions.plain(change.verb.done(change.given, answer))
        context = {"verb": change.verb, "told": told, "back": change.back}
        return self.render(request, session, "done.html", "", context)

    async def bundle(self, request: Request) -> Response:
        """Answers with what `headrace doctor --bundle` writes, as a file."""
        session = await self._session(request)
        if session is None:
            return _to_sign_in()
        form = await self._form(request)
        self._safety.check(request, form.pop("token", ""))
        if self._bundle is None:
            raise Mistake("this console makes no bundle; run `headrace doctor --bundle FILE`")
        async with self._sessions.asking(session):
            content = await self._bundle.make(session.admin)
        named = {"Content-Disposition": 'attachment; filename="headrace-doctor.tar.gz"'}
        return Response(content, media_type="application/gzip", headers=named)

    async def sign_in(self, request: Request) -> Response:
        """Shows the form, or lets a user in."""
        if not await self._sessions.asks_login():
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self.render(request, None, "sign-in.html", "", {"sentence": "", "user": ""})
        form = await self._form(request)
        self._safety.check(request, form.pop("token", ""))
        user, password = form.get("user", ""), form.get("password", "")
        try:
            name = await self._sessions.open(user, password)
        except MessageQueueError as error:
            problem = problem_of(error)
            context = {"sentence": str(problem), "user": user}
            return self.render(request, None, "sign-in.html", "", context, status=problem.status)
        await self._sessions.end(self._safety.browser(request))
        answer = RedirectResponse("/", 303)
        # A name that was known before signing in could be one that another has set.
        self._safety.remember(request, answer, name)
        return answer

    async def sign_out(self, request: Request) -> Response:
        """Ends the session."""
        form = await self._form(request)
        self._safety.check(request, form.pop("token", ""))
        await self._sessions.end(self._safety.browser(request))
        return RedirectResponse("/sign-in", 303)

    def render(
        self,
        request: Request,
        session: Session | None,
        template: str,
        tab: str,
        context: Mapping[str, Any],
        *,
        status: int = 200,
    ) -> Response:
        """Returns a page with what all pages have, and gives the browser its cookie."""
        name = self._safety.browser(request)
        new = name or self._safety.new_browser()
        shared = {
            "user": session.user if session else "",
            "signed_in": session is not None,
            "place": self._sessions.place,
            "token": self._safety.token(new),
            "tab": tab,
            "diagnostics": self._bundle is not None,
            "shown": self._tabs - ({"/users"} if session is None or not session.user else set()),
            "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            "query": defaultdict(str, request.query_params),
        }
        language = request.cookies.get("headrace_language", "")
        if language not in {"en", "zh"}:
            language = language_of(request.headers.get("accept-language", ""))
        answer = page(template, shared | dict(context), status=status, language=language)
        if not name:
            self._safety.remember(request, answer, new)
        return answer

    async def failed(self, request: Request, problem: Problem) -> Response:
        """Returns the page of an error; one of a user whom the broker lets in no more leads to the door."""
        if problem.kind == "login-failed":
            return _to_sign_in()
        try:
            session = await self._session(request)
        except MessageQueueError:  # the first error is the one to show
            session = None
        context = {"sentence": str(problem), "title": problem.body["title"]}
        return self.render(request, session, "error.html", "", context, status=problem.status)

    async def _answer(
        self,
        request: Request,
        template: str,
        verb: str,
        tab: str,
        asked: Mapping[str, str],
        *,
        with_letters: bool = False,
    ) -> Response:
        session = await self._session(request)
        if session is None:
            return _to_sign_in()
        answer: Any = {}
        if verb:
            own = {each.name for each in self._verbs[verb].fields}
            query = {n: each for n, each in _filled(request.query_params).items() if n in own}
            given = values_of(self._verbs[verb], query | dict(asked))
            async with self._sessions.asking(session):
                answer = await self._verbs[verb].run(session.admin, given)
                if with_letters:
                    answer |= await letters_kept(session.admin, answer["topics"])
        message = answer["message"] if verb == "message show" else None
        if message is not None and not message["hidden"]:
            message["shown"] = pretty(message["body"], base64.b64decode(message["body_base64"]))
        context = {"answer": answer, "verb": verb}
        return self.render(request, session, template, tab, context)

    async def _session(self, request: Request) -> Session | None:
        return await self._sessions.find(self._safety.browser(request))

    async def _form(self, request: Request) -> dict[str, str]:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._settings.body_bytes_max:
                raise Problem(
                    413, "too-large", "Too large", "the form is larger than body_bytes_max"
                )
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        except ValueError as error:
            raise Mistake("the form cannot be read; open the page again") from error
        fields: dict[str, str] = {}
        for name, value in pairs:
            # Boxes of one name are a list.
            fields[name] = f"{fields[name]},{value}" if name in fields else value
        return fields


def _filled(values: "Mapping[str, str] | QueryParams") -> dict[str, str]:
    """The fields that were filled in: a form sends all of them."""
    return {name: value for name, value in values.items() if value.strip()}


def _local(path: str) -> str:
    """A path of this console; anything else becomes the overview."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


def _to_sign_in() -> Response:
    return RedirectResponse("/sign-in", 303)
