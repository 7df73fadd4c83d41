"""The client's side of a login: the password, and whom it proves it to."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from pydantic import SecretStr

from headrace_mq._net.address import ClientLogin
from headrace_mq._net.login import (
    ROUNDS_MAX,
    credentials_of,
    login_steps,
    public_key_of,
    read_password,
)
from headrace_mq.broker.users.logins import Logins
from headrace_mq.errors import LoginFailed
from headrace_mq.protocol.access import ED25519, SCRAM, LoginAnswer
from headrace_mq.protocol.bodies import HelloAnswer

SERVICE = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
OPEN = HelloAnswer("b", 1, 1, 1 << 20)
GUARDED = HelloAnswer("b", 1, 1, 1 << 20, [SCRAM])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("pencil\n")
    file.chmod(0o600)
    return file


def test_a_password_is_the_text_of_its_file_without_the_end_of_the_line(file: Path) -> None:
    assert read_password(file).get_secret_value() == "pencil"
    file.write_bytes(b" pen cil \r\n")
    assert read_password(file).get_secret_value() == " pen cil "
    assert "pen" not in repr(read_password(file))


def test_a_password_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o640 if file.stat().st_uid else 0o604)
    with pytest.raises(LoginFailed, match="chmod 600"):
        read_password(file)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 2_000])
def test_a_file_without_a_password_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(LoginFailed) as caught:
        read_password(file)
    assert "xxx" not in str(caught.value)
    with pytest.raises(LoginFailed, match="No such file"):
        read_password(file.with_name("none"))


def test_a_broker_without_a_login_is_sent_nothing(file: Path) -> None:
    assert list(login_steps(ClientLogin("ann", file), OPEN)) == []
    assert list(login_steps(None, OPEN)) == []


def test_a_client_without_a_user_says_what_to_set() -> None:
    with pytest.raises(LoginFailed, match="HEADRACE_USER and HEADRACE_PASSWORD_FILE"):
        next(login_steps(None, GUARDED))
    other = HelloAnswer("b", 1, 1, 1, ["OTHER"])
    with pytest.raises(LoginFailed, match="asks for OTHER"):
        next(login_steps(ClientLogin("ann", Path("password")), other))


def test_both_sides_prove_that_they_know_the_password(file: Path) -> None:
    known = credentials_of(SecretStr("pencil"))
    logins = Logins[int]({"ann": known}.get, lambda: b"s", lambda: 0)
    steps = login_steps(ClientLogin("ann", file), GUARDED)
    final = steps.send(logins.step(1, "h", next(steps)).answer)
    answer = logins.step(1, "h", final).answer
    assert answer.done
    with pytest.raises(StopIteration):
        steps.send(answer)


def test_an_impostor_without_the_users_keys_is_found_out(file: Path) -> None:
    logins = Logins[int]({"ann": credentials_of(SecretStr("pencil"))}.get, lambda: b"s", lambda: 0)
    steps = login_steps(ClientLogin("ann", file), GUARDED)
    steps.send(logins.step(1, "h", next(steps)).answer)
    with pytest.raises(LoginFailed, match="could not prove"):
        steps.send(LoginAnswer("v=AAAA", done=True))


@pytest.mark.parametrize("rounds", [ROUNDS_MAX + 1, 1 << 40])
def test_a_broker_that_asks_for_endless_work_is_refused(file: Path, rounds: int) -> None:
    steps = login_steps(ClientLogin("ann", file), GUARDED)
    nonce = next(steps).message.rpartition("r=")[2]
    with pytest.raises(LoginFailed, match="could not prove"):
        steps.send(LoginAnswer(f"r={nonce}abc,s=c2FsdHNhbHQ=,i={rounds}"))


@pytest.mark.parametrize("answer", ["", "x", "r=other,s=c2FsdA==,i=4096"])
def test_an_answer_that_is_none_is_refused(file: Path, answer: str) -> None:
    steps = login_steps(ClientLogin("ann", file), GUARDED)
    next(steps)
    with pytest.raises(LoginFailed, match="could not prove"):
        steps.send(LoginAnswer(answer))


def test_no_traceback_has_the_password(file: Path) -> None:
    file.write_text("pen\u0007cil")
    with pytest.raises(LoginFailed) as caught:
        next(login_steps(ClientLogin("ann", file), GUARDED))
    assert "cil" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "bank.key"
    made = SERVICE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(made)
    file.chmod(0o600)
    return file


def test_a_file_with_a_key_is_a_login_by_signature(key: Path) -> None:
    public = public_key_of(key)
    assert public == SERVICE.public_key().public_bytes_raw()
    logins = Logins[int](lambda _: None, lambda: b"s", lambda: 0, {"bank": public}.__getitem__)
    steps = login_steps(ClientLogin("bank", key), HelloAnswer("b", 1, 1, 1, [SCRAM, ED25519]))
    final = steps.send(logins.step(1, "h", next(steps)).answer)
    found = logins.step(1, "h", final)
    assert (found.user, found.answer.done) == ("bank", True)
    with pytest.raises(StopIteration):
        steps.send(found.answer)


def test_a_key_is_not_sent_to_a_broker_that_knows_passwords_alone(key: Path) -> None:
    with pytest.raises(LoginFailed, match="is for ED25519"):
        next(login_steps(ClientLogin("bank", key), GUARDED))


def test_a_public_key_is_read_from_either_file_and_others_are_refused(key: Path) -> None:
    public = key.with_suffix(".pub")
    info = PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(SERVICE.public_key().public_bytes(Encoding.PEM, info))
    assert public_key_of(public) == public_key_of(key)
    public.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(Encoding.PEM, info)
    )
    with pytest.raises(LoginFailed, match="no key of Ed25519"):
        public_key_of(public)
    key.write_text("-----BEGIN PRIVATE KEY-----\nx\n")
    with pytest.raises(LoginFailed, match="no key of Ed25519"):
        public_key_of(key)
    key.chmod(0o604)
    with pytest.raises(LoginFailed, match="chmod 600"):
        public_key_of(key)
    with pytest.raises(LoginFailed, match="cannot be read"):
        public_key_of(key.with_name("none"))
