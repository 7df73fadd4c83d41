"""`headrace certificates`: certificates to try TLS out, where you have no authority of your own yet, and keys of services."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace._runtime.private_files import make_folder, open_new
from headrace.errors import ExtraMissing, HeadraceError

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["commands"]

commands = typer.Typer(help="Certificates to try TLS out.", no_args_is_help=True)

# Long enough to try it out, and short enough that it does not stay.
_DAYS: Final = 90
# The clocks of two machines may differ.
_EARLIER: Final = timedelta(hours=1)
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


@commands.callback()
def _group() -> None:
    """Certificates to try TLS out."""


@commands.command()
def make(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go.")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name or address by which clients connect to the broker, besides localhost; repeatable.",
        ),
    ] = None,
    client: Annotated[
        str, typer.Option("--client", metavar="NAME", help="The name of the client.")
    ] = "client",
) -> None:
    """Make an authority, and certificates for a broker and for a client; valid for 90 days.

    The authority's key is not kept: it signs these two and nothing else. Existing files stay as they are.
    """
    pages = _made([*_HOSTS, *(host or ())], client)
    make_folder(directory)
    there = [name for name in pages if (directory / name).exists()]
    if there:
        raise HeadraceError(
            f"{directory / there[0]} exists; name another directory, or remove the files there"
        )
    for name, content in pages.items():
        with open_new(directory / name, "xb") as file:
            file.write(content)
    typer.echo(
        f"{', '.join(pages)} are in {directory}, valid for {_DAYS} days\n"
        f"broker: --tls-certificate {directory}/server.pem --tls-key {directory}/server.key"
        f" --tls-client-ca {directory}/ca.pem\n"
        f"client: --tls-ca {directory}/ca.pem --tls-certificate {directory}/client.pem"
        f" --tls-key {directory}/client.key"
    )


@commands.command()
def key(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Where the key goes; FILE.pub has its public part."),
    ],
) -> None:
    """Make a key with which a service logs in to a broker, in place of a password. Existing files stay as they are."""
    public = file.with_name(f"{file.name}.pub")
    there = [one for one in (file, public) if one.exists()]
    if there:
        raise HeadraceError(f"{there[0]} exists; name another file, or remove it")
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise _missing() from error
    made, pem = Ed25519PrivateKey.generate(), serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    for path, content in (
        (file, made.private_bytes(pem, *plain)), (public, made.public_key().public_bytes(pem, info)),
    ):  # fmt: skip
        with open_new(path, "xb") as opened:
            opened.write(content)
    typer.echo(f"{file} is the key, which stays with the service; give {public} to the broker:")
    typer.echo(f"headrace user add NAME --key {public}")


def _missing() -> ExtraMissing:
    return ExtraMissing("cryptography is not installed; pip install 'headrace[certificates]'")


def _made(hosts: list[str], client: str) -> dict[str, bytes]:
    """Returns the files' contents by their names."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
    except ImportError as error:
        raise _missing() from error
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server", "client")}
    ca = _signed("Headrace, to try it out", keys["ca"], keys["ca"], issuer=None)
    made = {
        "server": _signed(hosts[0], keys["server"], keys["ca"], issuer=ca, hosts=hosts,
                          # A broker is a client of the others of its group.
                          usages=(Usage.SERVER_AUTH, Usage.CLIENT_AUTH)),
        "client": _signed(client, keys["client"], keys["ca"], issuer=ca, usages=(Usage.CLIENT_AUTH,)),
    }  # fmt: skip
    pem = serialization.Encoding.PEM
    files = {"ca.pem": ca.public_bytes(pem)}
    for name, certificate in made.items():
        files[f"{name}.pem"] = certificate.public_bytes(pem)
        files[f"{name}.key"] = keys[name].private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return files


def _signed(
    name: str,
    key: Any,
    signing: Any,
    *,
    issuer: "x509.Certificate | None",
    hosts: list[str] | None = None,
    usages: tuple[Any, ...] = (),
) -> "x509.Certificate":
    """Returns a certificate; without an issuer it is that of an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [_general_name(host) for host in hosts or ()]
    except ValueError as error:
        raise HeadraceError(f"no certificate can have this name: {error}") from error
    now, authority = datetime.now(UTC), issuer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(_key_usage(authority=authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signing, hashes.SHA256())


def _key_usage(*, authority: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority, key_cert_sign=authority, crl_sign=authority,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
