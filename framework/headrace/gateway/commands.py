"""
`POST /commands/{name}`: a command in JSON, its result in JSON.

    executed, unchanged   200      rejected by a rule      409      values do not fit    422
    no such aggregate     404
    handed over           202      no result in time       504      the broker is away   503

The endpoint behind the route; it executes commands on the command bus.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from headrace._runtime.ids import new_id
from headrace._runtime.log import get_logger
from headrace.access.principal import Principal
from headrace.bus import CommandBus
from headrace.domain.message import Command
from headrace.errors import (
    CommandRefused,
    CommandTimeout,
    ReadOnlyDatabase,
    SerializationError,
    SubjectKeysError,
)
from headrace.gateway import request as reading
from headrace.gateway.access.caller import caller_of
from headrace.gateway.access.permissions import Permissions
from headrace.gateway.catalogue import Catalogue
from headrace.gateway.problems import Problem, invalid, named_errors
from headrace.gateway.results import address_of, answer_of
from headrace.gateway.settings import GatewaySettings
from headrace.serialization import CommandEnvelope, Serializer

__all__ = ["Commands"]

log = get_logger(__name__)

# Far above any version of a message; a longer number is a slip.
_VERSION_MAX: Final = 1_000_000
_SAME_KEY: Final = "sending it again with the same Idempotency-Key is safe"
_QUERY: Final = {"version", "wait_ms"}


class Commands:
    """The endpoint of all commands.

    Args:
        catalogue: the commands there are.
        bus: sends them.
        serializer: of the application; what it cannot encode is the client's mistake.
        settings: bounds and waits.
        permissions: what clients may send.
        broker_away: whether the broker cannot be reached just now.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        bus: CommandBus,
        serializer: Serializer,
        settings: GatewaySettings,
        permissions: Permissions,
        broker_away: Callable[[], Awaitable[bool]],
    ) -> None:
        self._catalogue = catalogue
        self._bus = bus
        self._serializer = serializer
        self._settings = settings
        self._permissions = permissions
        self._broker_away = broker_away

    async def post(self, request: Request) -> Response:
        """Executes or hands over one command; raises `Problem`."""
        values = reading.single_values(request.query_params)
        unknown = sorted(values.keys() - _QUERY)
        if unknown:
            raise invalid(
                "the command's fields belong into the body",
                [{"field": name[:80], "sentence": "unknown in the query"} for name in unknown],
            )
        version = reading.integer(values, "version", least=1, most=_VERSION_MAX, default=None)
        command_type = self._catalogue.find(request.path_params["name"], version)
        self._permissions.require_send(request, command_type.message_name)
        wished = reading.preference(request.headers)
        wait_ms, applied = self._wait(values, wished)
        caller = caller_of(request)
        principal = caller.principal
        command_id = caller.command_id(reading.command_key(request.headers) or new_id())
        fields = await reading.json_object(
            request, bytes_max=self._settings.body_bytes_max, within_ms=self._settings.body_ms
        )
        command = self._command(command_type, fields)
        try:
            wait_ms = await self._check_encodes(command, command_id, wait_ms)
            if wished.respond_async:
                return await self._hand_over(command, command_id, wait_ms, principal)
            result = await self._bus.execute(
                command, command_id=command_id, timeout_ms=wait_ms, principal=principal
            )
        except ReadOnlyDatabase as error:
            raise Problem(
                503, "read-only", "Read-only service", str(error),
                command_id=command_id, aggregate_id=command.aggregate_id,
            ) from error  # fmt: skip
        except (CommandRefused, SubjectKeysError) as error:
            self._unavailable(command, command_id, error)
        except CommandTimeout as error:
            await self._overdue(command, command_id, error)
        return answer_of(result, applied, retry_after_s=self._settings.retry_after_s)

    def _wait(
        self, values: dict[str, str], wished: reading.Preference
    ) -> tuple[int, dict[str, str]]:
        most = self._settings.wait_ms_max
        asked = reading.integer(values, "wait_ms", least=1, most=most, default=None)
        if asked is not None:
            return asked, {}
        if not wished.wait_ms:
            return self._settings.wait_ms, {}
        wait_ms = min(wished.wait_ms, most)
        return wait_ms, {"Preference-Applied": f"wait={wait_ms // 1_000}"}

    def _command(self, command_type: type[Command], fields: dict[str, Any]) -> Command:
        name = command_type.message_name
        unstorable = list(reading.unstorable(fields))
        if unstorable:
            raise invalid("the body has values that no table can hold", unstorable)
        try:
            command = command_type.model_validate(fields)
        except ValidationError as error:
            raise invalid(
                f"the body does not fit {name} version {command_type.message_version}",
                named_errors(error),
            ) from error
        try:
            _ = command.aggregate_id
        except ValueError as error:
            wrong = {"field": command_type.aggregate_id_field, "sentence": str(error)}
            raise invalid(str(error), [wrong]) from error
        return command

    async def _check_encodes(self, command: Command, command_id: str, wait_ms: int) -> int:
        """Returns how much time is left once the command's keys are there and it encodes."""
        time = asyncio.get_running_loop().time
        end = time() + wait_ms / 1_000
        envelope = CommandEnvelope(
            command=command, command_id=command_id, correlation_id=command_id
        )
        cipher = self._serializer.cipher
        try:
            if cipher is not None:
                async with asyncio.timeout_at(end):
                    await cipher.make_ahead((command,))
                wait_ms = max(1, int((end - time()) * 1_000))
            self._serializer.encode_command(envelope)
        except TimeoutError as error:
            raise CommandTimeout(f"the keys did not come within {wait_ms} ms") from error
        except (
            ValueError, TypeError, OverflowError, SerializationError, msgspec.MsgspecError,
        ) as error:  # fmt: skip
            sentence = f"{command.message_name} cannot be sent with these values: {error}"
            raise invalid(sentence, [{"field": "", "sentence": sentence}]) from error
        return wait_ms

    async def _hand_over(
        self, command: Command, command_id: str, wait_ms: int, principal: Principal | None
    ) -> Response:
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await self._bus.send(command, command_id=command_id, principal=principal)
        except TimeoutError as error:
            raise CommandTimeout(
                f"the queue did not take the command within {wait_ms} ms"
            ) from error
        body = {
            "status": "accepted",
            "aggregate_id": command.aggregate_id,
            "command_id": command_id,
        }
        headers = {
            "Preference-Applied": "respond-async",
            "Location": address_of(command.aggregate_id, command_id),
        }
        return _json(202, body, headers)

    def _unavailable(self, command: Command, command_id: str, error: Exception) -> NoReturn:
        log.warning("command not taken by the queue", command_id=command_id, error=str(error))
        raise Problem(
            503,
            "unavailable",
            "Service unavailable",
            f"the queue cannot be reached or did not take command {command_id}; {_SAME_KEY}",
            headers={"Retry-After": str(self._settings.retry_after_s)},
            command_id=command_id,
            aggregate_id=command.aggregate_id,
        ) from error

    async def _overdue(self, command: Command, command_id: str, error: Exception) -> NoReturn:
        if await self._broker_away():
            self._unavailable(command, command_id, error)
        raise Problem(
            504,
            "timeout",
            "No result in time",
            f"no result of command {command_id} came in time, and its outcome is unknown;"
            f" {_SAME_KEY}",
            command_id=command_id,
            aggregate_id=command.aggregate_id,
        ) from error


def _json(status: int, body: object, headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
