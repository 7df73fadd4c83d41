"""The options of a database's URL become what its driver wants, or a sentence."""

import asyncio
import ssl

import pytest
from asyncpg import PostgresError
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from headrace.errors import DefinitionError
from headrace.stores.database.engines import create_engine, database_url
from headrace.stores.database.tls import tls_arguments

URL = "postgresql://me@db/bank"
SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require"])
@pytest.mark.parametrize("name", ["sslmode", "ssl"])
def test_modes_that_check_nothing_are_the_drivers_own(name: str, mode: str) -> None:
    assert tls_arguments(make_url(f"{URL}?{name}={mode}")) == {"ssl": mode}
    assert tls_arguments(make_url(URL)) == {}


@pytest.mark.parametrize(("mode", "checks_name"), [("verify-ca", False), ("verify-full", True)])
def test_modes_that_check_believe_the_systems_authorities(mode: str, checks_name: bool) -> None:
    context = tls_arguments(make_url(f"{URL}?sslmode={mode}"))["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, checks_name)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("sslmode=on", "has sslmode=on; write sslmode= and one of: disable, allow"),
        ("sslcert=a", "has no sslmode"),
        ("sslmode=require&sslrootcert=a", "sslrootcert without sslmode=verify-ca or verify-full"),
        ("sslmode=require&sslkey=a", "give its sslcert, too"),
        ("sslmode=prefer&sslcert=a", "sslcert needs a connection that is always encrypted"),
        ("sslmode=verify-full&sslrootcert=/no/such.pem", r"cannot be read \(/no/such\.pem\)"),
        ("sslmode=require&sslcert=/no/such.pem", r"cannot be read \(/no/such\.pem\)"),
    ],
)
def test_an_unknown_or_impossible_mode_is_refused_in_a_sentence(
    options: str, sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        create_engine(f"{URL}?{options}")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (f"{URL}?sslmodus=require", "postgresql:// URL has no option 'sslmodus'; .* sslmode"),
        (f"{URL}?sslmode=require&command_timeout=1", "no option 'command_timeout'"),
        ("sqlite:///events.db?mode=ro", "sqlite:// URL has no option 'mode'; .* timeout"),
    ],
)
def test_an_unknown_option_is_named_with_those_there_are(url: str, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        database_url(url)


async def first_bytes(options: str) -> bytes:
    """Returns what a connection begins with, against a server that knows no TLS."""
    begun = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(8)
        if not begun.done():
            begun.set_result(asked)
        writer.write(b"N")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    engine = create_engine(f"postgresql://me@127.0.0.1:{port}/bank{options}")
    try:
        with pytest.raises((OSError, SQLAlchemyError, PostgresError)):
            await engine.connect()
        return bytes(await begun)
    finally:
        await engine.dispose()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_connection_that_must_be_encrypted_asks_for_tls_first(mode: str) -> None:
    assert await first_bytes(f"?sslmode={mode}") == SSL_REQUEST


async def test_a_connection_that_must_not_does_not_ask() -> None:
    assert await first_bytes("?sslmode=disable") != SSL_REQUEST
