"""Logins with SCRAM-SHA-256: right ones, wrong ones, hostile ones, and many of them."""

import base64
import statistics
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr
from scramp import ScramClient

from headrace_mq._net.login import credentials_of
from headrace_mq.broker.users import logins
from headrace_mq.broker.users.logins import FAILURES_MAX, LOCKED_MS, Logins
from headrace_mq.errors import InvalidArgument, LoginFailed
from headrace_mq.protocol.access import ED25519, SCRAM, Login, key_greeting, signed_by_key

TIMED = 300
# Of the right length, and wrong.
PROOF = base64.b64encode(bytes(32)).decode()
PENCIL = credentials_of(SecretStr("pencil"))


class Desk:
    """The logins of a broker with two users, and clients of several addresses."""

    def __init__(self) -> None:
        self.users = {"ann": PENCIL, "CN=reports,O=Bank": PENCIL}
        self.now_ms = 1_000
        self.logins = Logins[int](self.users.get, lambda: b"secret", lambda: self.now_ms)
        self.connection = 0

    def begin(self, name: str, password: str, host: str = "10.0.0.1") -> Any:
        self.connection += 1
        client = ScramClient([SCRAM], name, password)
        first = Login(SCRAM, client.get_client_first())
        client.set_server_first(self.logins.step(self.connection, host, first).answer.message)
        return client

    def log_in(self, name: str, password: str, host: str = "10.0.0.1") -> str:
        client = self.begin(name, password, host)
        found = self.logins.step(self.connection, host, Login(SCRAM, client.get_client_final()))
        assert found.answer.done
        client.set_server_final(found.answer.message)
        return found.user


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("name", ["ann", "CN=reports,O=Bank"])
def test_the_right_password_lets_a_user_in(desk: Desk, name: str) -> None:
    assert desk.log_in(name, "pencil") == name
    assert not desk.logins._exchanges


@pytest.mark.parametrize(("name", "password"), [("ann", "pen"), ("bob", "pencil")])
def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(
    desk: Desk, name: str, password: str
) -> None:
    with pytest.raises(
        LoginFailed, match=f"does not let {name!r} in: the name or the password is wrong"
    ):
        desk.log_in(name, password)


def test_an_unknown_name_has_a_salt_that_stays(desk: Desk) -> None:
    salts = {bytes(desk.begin("bob", "x").salt) for _ in range(3)}
    assert len(salts) == 1
    assert salts != {bytes(desk.begin("eve", "x").salt)}
    assert len(salts.pop()) == len(PENCIL.salt)


def test_an_unknown_name_takes_as_long_as_a_known_one() -> None:
    desk, spent = Desk(), dict[str, list[int]]()
    for number in range(TIMED):
        for name in ("ann", "bob"):
            client = ScramClient([SCRAM], name, "wrong", c_nonce=f"n{number}")
            first = Login(SCRAM, client.get_client_first())
            began_ns = time.process_time_ns()
            answer = desk.logins.step(1, f"host {number}", first).answer.message
            # The proof of a password costs the client thousands of hashes, and the broker none.
            nonce = answer.partition(",")[0]
            with pytest.raises(LoginFailed):
                desk.logins.step(1, f"host {number}", Login(SCRAM, f"c=biws,{nonce},p={PROOF}"))
            spent.setdefault(name, []).append(time.process_time_ns() - began_ns)
    known, unknown = (statistics.median(spent[name]) for name in ("ann", "bob"))
    # Far less than a network adds; the work is the same.
    assert abs(known - unknown) < 0.2 * known


def test_a_replayed_proof_is_refused(desk: Desk) -> None:
    client = desk.begin("ann", "pencil")
    proof = Login(SCRAM, client.get_client_final())
    desk.logins.step(desk.connection, "10.0.0.1", proof)
    desk.begin("ann", "pencil")
    with pytest.raises(LoginFailed):
        desk.logins.step(desk.connection, "10.0.0.1", proof)


def test_a_user_that_is_disabled_meanwhile_does_not_get_in(desk: Desk) -> None:
    client = desk.begin("ann", "pencil")
    del desk.users["ann"]
    with pytest.raises(LoginFailed):
        desk.logins.step(desk.connection, "10.0.0.1", Login(SCRAM, client.get_client_final()))


def test_a_name_is_locked_for_the_address_of_its_failures_alone(desk: Desk) -> None:
    for _ in range(FAILURES_MAX):
        with pytest.raises(LoginFailed, match="wrong"):
            desk.log_in("ann", "pen")
    with pytest.raises(LoginFailed, match=r"failed from 10\.0\.0\.1; .* try again in 30 s"):
        desk.log_in("ann", "pencil")
    assert desk.log_in("ann", "pencil", "10.0.0.2") == "ann"
    assert desk.log_in("CN=reports,O=Bank", "pencil") == "CN=reports,O=Bank"
    desk.now_ms += LOCKED_MS
    assert desk.log_in("ann", "pencil") == "ann"
    assert desk.logins.refused == FAILURES_MAX + 1


def test_many_exchanges_at_once_are_no_more_guesses(desk: Desk) -> None:
    begun = [(desk.begin("ann", "pen"), desk.connection) for _ in range(FAILURES_MAX * 2)]
    sentences = []
    for client, connection in begun:
        with pytest.raises(LoginFailed) as caught:
            desk.logins.step(connection, "10.0.0.1", Login(SCRAM, client.get_client_final()))
        sentences.append(str(caught.value))
    assert sum("too many" in sentence for sentence in sentences) == FAILURES_MAX


def test_failures_are_forgotten_after_a_success_and_after_a_time(desk: Desk) -> None:
    for pause_ms in (0, LOCKED_MS + 1):
        for _ in range(FAILURES_MAX - 1):
            with pytest.raises(LoginFailed, match="wrong"):
                desk.log_in("ann", "pen")
        desk.now_ms += pause_ms
        if not pause_ms:
            desk.log_in("ann", "pencil")
    with pytest.raises(LoginFailed, match="wrong"):
        desk.log_in("ann", "pen")
    assert desk.log_in("ann", "pencil") == "ann"


def test_the_memory_of_failures_has_a_bound(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "WATCHED_MAX", 3)
    for number in range(6):
        with pytest.raises(LoginFailed):
            desk.log_in(f"user{number}", "x")
    assert len(desk.logins._failures) == 3


def test_a_closed_connection_leaves_no_exchange(desk: Desk) -> None:
    desk.begin("ann", "pencil")
    desk.logins.forget(desk.connection)
    assert not desk.logins._exchanges


def test_another_mechanism_is_refused(desk: Desk) -> None:
    with pytest.raises(InvalidArgument, match="SCRAM-SHA-256 and ED25519"):
        desk.logins.step(1, "h", Login("PLAIN", "\0ann\0pencil"))


@hypothesis_settings(deadline=None)  # the first example imports scramp
@given(
    st.lists(
        st.text(max_size=60)
        | st.sampled_from(["n,,n=ann,r=abc", "n,,n==,r=a", "c=biws,r=x,p=", "p=x,,", "x" * 3_000]),
        max_size=4,
    )
)
def test_hostile_messages_are_failed_logins(messages: list[str]) -> None:
    desk = Desk()
    for message in messages:
        try:
            found = desk.logins.step(1, "h", Login(SCRAM, message))
        except LoginFailed:
            continue
        assert not found.user


SERVICE = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
NONCE = "n" * 32


class KeyDesk:
    """The logins of a broker with one service, that has a key."""

    def __init__(self) -> None:
        public = {"bank": SERVICE.public_key().public_bytes_raw()}
        self.logins = Logins[int](
            lambda _: None, lambda: b"secret", lambda: 1_000, lambda name: public.get(name, b"")
        )

    def begin(self, name: str, connection: int = 1) -> str:
        first = Login(ED25519, key_greeting(name, NONCE))
        return self.logins.step(connection, "10.0.0.1", first).answer.message

    def end(self, signature: bytes, connection: int = 1) -> str:
        final = Login(ED25519, base64.b64encode(signature).decode())
        return self.logins.step(connection, "10.0.0.1", final).user


def test_the_signature_of_a_service_lets_it_in_once() -> None:
    desk = KeyDesk()
    signature = SERVICE.sign(signed_by_key("bank", NONCE, desk.begin("bank")))
    assert desk.end(signature) == "bank"
    desk.begin("bank")
    with pytest.raises(LoginFailed, match="does not let 'bank' in"):
        desk.end(signature)


@pytest.mark.parametrize("name", ["bank", "eve"])
def test_a_wrong_signature_and_an_unknown_service_get_the_same_answer_and_are_locked(
    name: str,
) -> None:
    desk, other = KeyDesk(), Ed25519PrivateKey.generate()
    for _ in range(FAILURES_MAX):
        signed = signed_by_key(name, NONCE, desk.begin(name))
        with pytest.raises(LoginFailed, match=f"does not let {name!r} in"):
            desk.end(other.sign(signed))
    with pytest.raises(LoginFailed, match="too many logins"):
        desk.begin(name)


@pytest.mark.parametrize(
    "message", ["", "n=bank", "r=short,n=bank", f"r={NONCE}x!,n=bank", f"r={NONCE},n="]
)
def test_a_greeting_that_is_none_is_a_failed_login(message: str) -> None:
    with pytest.raises(LoginFailed, match="no first message"):
        KeyDesk().logins.step(1, "h", Login(ED25519, message))


def test_a_login_does_not_change_its_mechanism_on_the_way() -> None:
    desk = KeyDesk()
    desk.begin("bank")
    with pytest.raises(LoginFailed, match="the mechanism that it began with"):
        desk.logins.step(1, "10.0.0.1", Login(SCRAM, "n,,n=bank,r=x"))
    assert desk.logins.named == "bank"


def test_the_last_message_has_the_mechanism_of_the_exchange(desk: Desk) -> None:
    """So the audit names the proof that a user gave, and not what the last frame called it."""
    client = desk.begin("ann", "pencil")
    with pytest.raises(LoginFailed, match="the mechanism that it began with"):
        desk.logins.step(desk.connection, "10.0.0.1", Login(ED25519, client.get_client_final()))
    assert desk.logins.named == "ann"
    assert desk.logins.refused == 1
    assert desk.log_in("ann", "pencil") == "ann"
