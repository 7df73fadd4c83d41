"""
What becomes of a request that failed: a code and one sentence, or the end of its connection.

Used by `dispatcher`, and by handlers that answer later; uses the connection.
"""

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    BrokerError,
    DataCorrupt,
    FormatTooNew,
    LoginFailed,
    MalformedRequest,
    ResponseCode,
    UnsupportedVersion,
)
from headrace_mq.protocol.bodies import ErrorAnswer, encode
from headrace_mq.protocol.frame import Frame

__all__ = ["refuse"]

_log = get_logger(__name__)


def refuse(connection: Connection, frame: Frame, error: Exception) -> None:
    """Tells a client why its request failed; closes the connection after a fatal error."""
    refusal = _as_refusal(error)
    if refusal.code == ResponseCode.INTERNAL_ERROR:
        _log.error("request failed", code=frame.code, client=connection.client_id, exc_info=error)
    if refusal.fatal or not frame.is_oneway:
        connection.answer(refusal.code, frame.correlation, encode(ErrorAnswer(str(refusal))))
    if refusal.fatal:
        if not isinstance(refusal, LoginFailed):  # the audit has it, and bounds a flood of them
            _log.warning("connection refused", client=connection.client_id, reason=str(refusal))
        connection.refuse()


def _as_refusal(error: Exception) -> BrokerError:
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, FormatTooNew):
        return UnsupportedVersion(str(error))
    if isinstance(error, DataCorrupt):
        return MalformedRequest(str(error))
    return BrokerError(
        "the broker failed on this request and wrote the reason to its log; report it, and do not"
        " repeat the request unchanged"
    )
