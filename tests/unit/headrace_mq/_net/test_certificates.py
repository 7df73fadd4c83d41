"""Files of certificates: which are refused, how they are renewed, and what a subject is called."""

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq._net.address import ClientFiles
from headrace_mq._net.certificates import (
    ServerCertificates,
    ServerFiles,
    broken_sentence,
    client_context,
    subject_of,
)
from headrace_mq._net.expiry import expiry_of
from headrace_mq.errors import MessageQueueError, TlsFailed


@pytest.fixture
def files(tmp_path: Path, authority: Any) -> ServerFiles:
    return ServerFiles(*authority.issue(tmp_path, "localhost"))


def test_both_sides_speak_tls_1_3_alone(files: ServerFiles, tmp_path: Path, authority: Any) -> None:
    server = ServerCertificates(files).context
    client = client_context(ClientFiles(authority.write(tmp_path)))
    assert server.minimum_version == client.minimum_version == ssl.TLSVersion.TLSv1_3
    assert (client.verify_mode, client.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (server.verify_mode, server.num_tickets) == (ssl.CERT_NONE, 0)


def test_without_a_file_a_client_believes_the_systems_authorities() -> None:
    context = client_context(ClientFiles())
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_server_that_asks_for_certificates_requires_them(
    files: ServerFiles, tmp_path: Path, authority: Any
) -> None:
    asking = files._replace(client_ca=authority.write(tmp_path))
    assert ServerCertificates(asking).context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_key_that_others_can_read_is_refused(files: ServerFiles, mode: int) -> None:
    files.key.chmod(mode)
    if os.getuid() == 0:
        os.chown(files.key, 12_345, -1)
    with pytest.raises(MessageQueueError, match=f"other users can read .*chmod 600 {files.key}"):
        ServerCertificates(files)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can own a key as root")
@pytest.mark.parametrize(("mode", "fits"), [(0o640, True), (0o660, False), (0o644, False)])
def test_a_key_of_root_may_be_shared_with_a_group(
    files: ServerFiles, mode: int, fits: bool
) -> None:
    files.key.chmod(mode)
    if fits:
        ServerCertificates(files)
    else:
        with pytest.raises(MessageQueueError, match="chmod 600"):
            ServerCertificates(files)


def test_files_that_cannot_be_used_are_named_with_the_reason(
    files: ServerFiles, tmp_path: Path, authority: Any
) -> None:
    absent = tmp_path / "absent.pem"
    _, other_key = authority.issue(tmp_path, "localhost", file="other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate", encoding="utf-8")
    text.chmod(0o600)
    for wrong, sentence in (
        (files._replace(certificate=absent), "No such file.*name two PEM files"),
        (files._replace(key=absent), "absent.pem cannot be used: No such file"),
        (files._replace(key=other_key), "do not belong together"),
        (files._replace(certificate=text), "PEM"),
        (files._replace(key=text), "PEM"),
        (files._replace(client_ca=text), "certificates of authorities"),
    ):
        with pytest.raises(MessageQueueError, match=sentence):
            ServerCertificates(wrong)
    for ca in (text, absent):
        with pytest.raises(TlsFailed, match=f"{ca} cannot be used"):
            client_context(ClientFiles(ca))


def test_files_are_read_again_when_they_change(
    files: ServerFiles, tmp_path: Path, authority: Any
) -> None:
    certificates = ServerCertificates(files)
    first = certificates.context
    certificates.look()
    assert certificates.context is first
    assert certificates.expires_s == expiry_of(files.certificate.read_bytes())
    authority.issue(tmp_path, "renewed.example")
    certificates.look()
    assert certificates.context is not first
    assert certificates.expires_s == expiry_of(files.certificate.read_bytes())
    second = certificates.context
    certificates.look()
    assert certificates.context is second
    certificates.look(always=True)
    assert certificates.context is not second


def test_while_new_files_cannot_be_used_the_last_ones_stay(
    files: ServerFiles, tmp_path: Path, authority: Any
) -> None:
    certificates = ServerCertificates(files)
    first = certificates.context
    files.certificate.write_text("half", encoding="utf-8")
    with capture_logs() as logs:
        certificates.look()
        certificates.look()
    assert certificates.context is first
    assert [each["log_level"] for each in logs] == ["error"]
    files.key.unlink()
    certificates.look()
    authority.issue(tmp_path, "localhost")
    certificates.look()
    assert certificates.context is not first


def failed(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def unbelieved(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "what OpenSSL says"
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (failed("WRONG_VERSION_NUMBER"), "does not speak TLS; leave tls:// out"),
        (
            failed("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            "asks for a client's certificate; name yours",
        ),
        (failed("TLSV1_ALERT_UNKNOWN_CA"), "does not know the authority"),
        (failed("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "has expired; renew it"),
        (failed("TLSV1_ALERT_PROTOCOL_VERSION"), "does not speak TLS 1.3"),
        (failed("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), "failed: decryption failed or bad"),
        (unbelieved(10), "has expired; renew it"),
        (unbelieved(9), "not valid yet; check the clocks"),
        (unbelieved(62), "is not for queue; connect to a name"),
        (unbelieved(64), "is not for queue; connect to a name"),
        (unbelieved(18), "is not known here; name its certificate with ca=FILE"),
        (unbelieved(20), "is not known here; name its certificate with ca=FILE"),
        (unbelieved(23), "is not believed: what OpenSSL says"),
    ],
)
def test_a_failure_says_what_to_do(error: ssl.SSLError, sentence: str) -> None:
    assert sentence in broken_sentence(error, "queue")


def test_a_subject_is_written_with_the_most_special_name_first() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "ann"),))
    assert subject_of({"subject": subject}) == "CN=ann,O=A\\, B,C=DE"
    assert subject_of({"subject": ((("userId", "7"),),)}) == "userId=7"
    assert subject_of(None) == subject_of({}) == ""


def test_an_expired_certificate_is_one_a_server_can_still_load(
    tmp_path: Path, authority: Any
) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)
    expired = authority.issue(tmp_path, "localhost", not_before=past[0], not_after=past[1])
    # Its clients tell; a broker with a wrong clock must not end for that.
    ServerCertificates(ServerFiles(*expired))
