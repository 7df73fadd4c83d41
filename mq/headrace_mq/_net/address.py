"""
The address of a broker as text: where it is, and how a client makes sure of whom it talks to.

    127.0.0.1:9876                                      without TLS
    old.example:9876,new.example:9876                   one broker that moved
    tls://queue.example:9876                            signed by an authority that the system trusts
    tls://queue.example:9876?ca=ca.pem                  by one of these
    tls://queue.example:9876?ca=ca.pem&certificate=client.pem&key=client.key
    tcp://a.example:9876,b.example:9876?read_from=replica   a group: what only reads is served by a replica
    tls://queue.example:9876?user=ann&password_file=ann.txt
    tcp://127.0.0.1:9876?user=ann&password_file=ann.txt     without TLS, with a login
    nameserver://ns1:9875,ns2:9875/default              the brokers of a cluster, where name servers say that they are
    nameserver://ns1:9875/default/g1?ca=ca.pem          those of one of its groups; the options hold for all of them
    nameserver://ns1:9875/default/g1,g2                 topics that are spread over these groups, and the others of g1

So everything that takes an address takes TLS and a login too: settings, options, Spark's plans. It holds names of files and no
secret, so it may be logged; one with a user before the host is refused, and no refusal repeats what may be a password. Used by clients, which connect there, and by options, which check what a user wrote; pure.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self, cast, get_args
from urllib.parse import parse_qsl, quote, unquote

from headrace_mq.errors import ConnectionLost

__all__ = [
    "BrokerAddress",
    "ClientFiles",
    "ClientLogin",
    "ClusterName",
    "ReadFrom",
    "failure_of",
    "parse_address",
    "place_name",
    "read_from_of",
    "reasons_of",
    "unreachable",
]

# Who serves what only reads: the leader of a group, or one of its replicas.
ReadFrom = Literal["leader", "replica"]
_READ_FROM: Final = "read_from"
_EXAMPLES: Final = {"user": "NAME", _READ_FROM: "replica"}

_SCHEME, _PLAIN_SCHEME = "tls://", "tcp://"
# With a file of TLS in its options the first one means the second one, too.
_NAMES_SCHEME, _SECURE_NAMES_SCHEME = "nameserver://", "nameserver+tls://"
# What stands before an @ may be a password, so none of it is repeated.
_USER_IN_IT = (
    "a broker address has no user and no password before its host; write HOST:PORT or tls://HOST:PORT, and give"
    " the user and the file with the password as HEADRACE_USER and HEADRACE_PASSWORD_FILE"
)


class ClientFiles(NamedTuple):
    """The files that a client needs for TLS.

    Attributes:
        ca: certificates of the authorities that it believes; None: those of the system.
        certificate: its own with those that lead to its authority, if the broker asks for one.
        key: the private key of that.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class ClientLogin(NamedTuple):
    """How a client logs in.

    Attributes:
        user: its name.
        password_file: holds its password alone, and no other user of the machine can read it.
    """

    user: str
    password_file: Path


class ClusterName(NamedTuple):
    """What name servers are asked for.

    Attributes:
        cluster: its name.
        group: one of its groups, or several with commas between them; empty: the only one.
    """

    cluster: str
    group: str = ""


class BrokerAddress(NamedTuple):
    """Where a broker may be found.

    A broker is one process; several places are for one that moved, or for a group. Clients use the first that serves.

    Attributes:
        places: hosts and ports, of name servers if there is a cluster.
        tls: how to make sure of it; None: without TLS.
        login: how to log in; None: without a password.
        cluster: what to ask name servers for; None: the places are those of brokers.
        read_from: "replica": readers that move no offsets read messages from a replica; the rest is the leader's.
    """

    places: tuple[tuple[str, int], ...]
    tls: ClientFiles | None = None
    login: ClientLogin | None = None
    cluster: ClusterName | None = None
    read_from: ReadFrom = "leader"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads an address.

        Raises:
            ValueError: it is none; shows an example, and no secret.
        """
        if text.startswith((_NAMES_SCHEME, _SECURE_NAMES_SCHEME)):
            return cls._parse_names(text)
        rest, tls, login = text, None, None
        read_from: ReadFrom = "leader"
        if text.startswith((_SCHEME, _PLAIN_SCHEME)):
            secured = text.startswith(_SCHEME)
            rest, _, options = text[len(_SCHEME) :].partition("?")
            given = _options(options, ClientFiles._fields if secured else ())
            login = _login_of(given)
            tls = _files(given) if secured else None
            read_from = read_from_of(given.get(_READ_FROM, read_from))
        # Before it is split: a password may have a comma.
        _require_no_user(rest)
        places = tuple(parse_address(each.strip()) for each in rest.split(","))
        return cls(places, tls, login, None, read_from)

    @classmethod
    def _parse_names(cls, text: str) -> Self:
        scheme, _, rest = text.partition("://")
        rest, _, options = rest.partition("?")
        given = _options(options, ClientFiles._fields)
        login, files = _login_of(given), _files(given)
        _require_no_user(rest)
        hosts, _, path = rest.partition("/")
        names = [unquote(each) for each in path.split("/")]
        if not 1 <= len(names) <= 2 or not all(names):
            raise ValueError(
                "name the cluster behind the name servers, as in nameserver://HOST:9875/default, and one of its groups"
                " where it has several: nameserver://HOST:9875/default/g1"
            )
        groups = names[1].split(",") if len(names) > 1 else []
        if len(set(groups)) < len(groups) or not all(groups):
            raise ValueError("name each group once, as in nameserver://HOST:9875/default/g1,g2")
        places = tuple(parse_address(each.strip()) for each in hosts.split(","))
        secured = any(files) or f"{scheme}://" == _SECURE_NAMES_SCHEME
        read_from = read_from_of(given.get(_READ_FROM, "leader"))
        return cls(places, files if secured else None, login, ClusterName(*names), read_from)

    @property
    def may_move(self) -> bool:
        """Whether another place may serve when this one does not."""
        return len(self.places) > 1 or self.cluster is not None

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that it names; several for topics that are spread over them."""
        named = "" if self.cluster is None else self.cluster.group
        return tuple(named.split(",")) if named else ()

    def of_each_group(self) -> dict[str, Self]:
        """Returns the address of each group that it names, by name."""
        assert self.cluster is not None
        return {
            group: self._replace(cluster=self.cluster._replace(group=group))
            for group in self.groups
        }

    def of_one_group(self) -> Self:
        """Returns this address. Raises ValueError where it names several groups, and one is needed."""
        if len(self.groups) > 1:
            raise ValueError(
                f"the address names the groups {', '.join(self.groups)}, and this works with one of them; name that one"
            )
        return self

    def secured(self, tls: ClientFiles) -> Self:
        """Returns this address with TLS; files that it names itself go first.

        Raises:
            ValueError: there is a certificate without its key, or the reverse.
        """
        own = self.tls or ClientFiles()
        files = ClientFiles(*(mine or theirs for mine, theirs in zip(own, tls, strict=True)))
        _require_pair(files)
        return self._replace(tls=files)

    def as_user(self, user: str | None, password_file: Path | None) -> Self:
        """Returns this address with a login; one that it names itself goes first.

        Raises:
            ValueError: there is a name without a password, or the reverse.
        """
        if self.login is not None:
            return self
        given = {"user": user, "password_file": password_file and str(password_file)}
        return self._replace(login=_login_of({name: one for name, one in given.items() if one}))

    def reading_from(self, read_from: str | None) -> Self:
        """Returns this address with who serves reads; None: as it is. Raises ValueError: neither leader nor replica."""
        return self if read_from is None else self._replace(read_from=read_from_of(read_from))

    def __str__(self) -> str:
        hosts = ",".join(place_name(place) for place in self.places)
        if self.cluster is not None:
            names = "/".join(quote(each, safe=",") for each in self.cluster if each)
            hosts = f"{hosts}/{names}"
        apart = {} if self.read_from == "leader" else {_READ_FROM: self.read_from}
        if self.cluster is None and self.tls is None and self.login is None and not apart:
            return hosts
        named = {
            **(self.tls._asdict() if self.tls else {}),
            **(self.login._asdict() if self.login else {}),
            **apart,
        }
        given = [
            f"{name}={quote(str(one), safe='/')}" for name, one in named.items() if one is not None
        ]
        plain, secure = _PLAIN_SCHEME, _SCHEME
        if self.cluster is not None:
            plain, secure = _NAMES_SCHEME, _SECURE_NAMES_SCHEME
        scheme = plain if self.tls is None else secure
        return f"{scheme}{hosts}{'?' if given else ''}{'&'.join(given)}"


def parse_address(address: str) -> tuple[str, int]:
    """Splits `host:port`, or `[host]:port` for IPv6; raises ValueError with an example, and no secret."""
    _require_no_user(address)
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() else -1
    # With a slash it is a URL, and no name of a host.
    if not host or "/" in host or "?" in host or not 0 <= number <= 65_535:
        raise ValueError(
            "a broker address looks like 127.0.0.1:9876, or tls://queue.example:9876?ca=ca.pem,"
            # Behind a question mark may stand a password.
            f" not {address.partition('?')[0]!r}"
        )
    return host, number


def _require_no_user(address: str) -> None:
    if "@" in address:
        raise ValueError(_USER_IN_IT)


def _options(options: str, files: tuple[str, ...]) -> dict[str, str]:
    known = (*files, *ClientLogin._fields, _READ_FROM)
    try:
        given = dict(parse_qsl(options, strict_parsing=True)) if options else {}
    except ValueError:
        example = "&".join(f"{name}={_EXAMPLES.get(name, 'FILE')}" for name in known)
        # What was written may be a password, and the error repeats it.
        raise ValueError(f"write ?{example} behind the port, and nothing else") from None
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise ValueError(
            f"a broker address has no option {unknown[0]!r} here; use {', '.join(known)}"
        )
    return given


def read_from_of(text: str) -> ReadFrom:
    """Returns who serves reads; raises ValueError where the text says neither."""
    if text not in get_args(ReadFrom):
        raise ValueError(f"read_from is leader or replica, not {text!r}")
    return cast("ReadFrom", text)


def _files(given: Mapping[str, str]) -> ClientFiles:
    files = ClientFiles(
        **{name: Path(given[name]) for name in ClientFiles._fields if name in given}
    )
    _require_pair(files)
    return files


def _login_of(given: Mapping[str, str]) -> ClientLogin | None:
    named = [name for name in ClientLogin._fields if name in given]
    if len(named) == 1:
        raise ValueError(
            "a user and the file with the password go together: name both, user=NAME&password_file=FILE"
            " (HEADRACE_USER, HEADRACE_PASSWORD_FILE), or none"
        )
    return ClientLogin(given["user"], Path(given["password_file"])) if named else None


def _require_pair(files: ClientFiles) -> None:
    if (files.certificate is None) != (files.key is None):
        raise ValueError("a client's certificate and its key go together: name both files, or none")


def place_name(place: tuple[str, int]) -> str:
    """Writes a place as `host:port`, or `[host]:port` for IPv6."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reasons_of(failures: Mapping[tuple[str, int], Exception]) -> str:
    """Says why no address answered; the address stands with its reason where there are several."""
    if len(failures) == 1:
        return str(next(iter(failures.values())))
    named = {place_name(place): each for place, each in failures.items()}
    return "; ".join(
        f"{name}: {str(error) or type(error).__name__}" for name, error in named.items()
    )


def failure_of(failures: Mapping[tuple[str, int], Exception]) -> Exception:
    """Returns the only reason why an address did not answer, or an error that has all reasons."""
    if len(failures) == 1:
        return next(iter(failures.values()))
    return ConnectionLost(reasons_of(failures))


def unreachable(address: str, reason: BaseException | str | None) -> ConnectionLost:
    """The error for a broker that does not answer, saying what to check."""
    because = f" ({reason})" if reason is not None and str(reason) else ""
    return ConnectionLost(
        f"no broker answers at {address}{because}: check that it is running, that address and port"
        " are right, and that no firewall stands between"
    )
