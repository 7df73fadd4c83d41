"""Addresses of brokers, without TLS and with it."""

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq._net.address import (
    BrokerAddress,
    ClientFiles,
    ClientLogin,
    ClusterName,
    failure_of,
    parse_address,
    reasons_of,
)


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:9876", ("127.0.0.1", 9876)), ("[::1]:1", ("::1", 1)), ("queue:0", ("queue", 0))],
)
def test_an_address_is_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert parse_address(address) == parts
    assert BrokerAddress.parse(address) == BrokerAddress((parts,))


@pytest.mark.parametrize(
    "address",
    ["", "queue", ":1", "queue:", "queue:x", "queue:65536", "q:-1", "http://queue:1", "tls://"],
)
def test_a_wrong_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ValueError, match=r"looks like 127\.0\.0\.1:9876"):
        BrokerAddress.parse(address)


@pytest.mark.parametrize(
    "address",
    [
        "tls://u:s3cret@127.0.0.1:1",
        "tcp://u:s3cret@127.0.0.1:1?user=u&password_file=f",
        "u:s3cret@127.0.0.1:1",
        "s3cret@127.0.0.1:1",
        "a:1,u:s3cret@127.0.0.1:1",
        "tls://u:s3cret,more@127.0.0.1:1",
        "http://u:s3cret@127.0.0.1:1",
        "127.0.0.1:1?user=u@example&password=s3cret",
    ],
)
def test_an_address_with_a_user_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_USER and HEADRACE_PASSWORD_FILE") as refused:
        BrokerAddress.parse(address)
    assert "s3cret" not in traceback_of(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1?password=s3cret",
        "127.0.0.1?password=s3cret:1",
        "http://127.0.0.1:1?password=s3cret",
        "tls://127.0.0.1:1?s3cret",
        "tls://127.0.0.1:1?password=s3cret",
        "tls://127.0.0.1?password=s3cret",
    ],
)
def test_a_refusal_of_an_address_tells_no_option(address: str) -> None:
    with pytest.raises(ValueError, match=r"a broker address|behind the port") as refused:
        BrokerAddress.parse(address)
    assert "s3cret" not in traceback_of(refused.value)


def test_a_user_may_have_an_at_sign_where_options_name_it() -> None:
    parsed = BrokerAddress.parse("tls://queue:1?user=ann@example.org&password_file=ann.txt")
    assert parsed.login == ClientLogin("ann@example.org", Path("ann.txt"))
    assert BrokerAddress.parse(str(parsed)) == parsed


def test_a_broker_that_moved_has_several_addresses() -> None:
    places = (("old", 1), ("::1", 2), ("127.0.0.1", 3))
    assert BrokerAddress.parse("old:1, [::1]:2,127.0.0.1:3") == BrokerAddress(places)
    secured = BrokerAddress.parse("tls://old:1, [::1]:2,127.0.0.1:3")
    assert secured == BrokerAddress(places, ClientFiles())
    with pytest.raises(ValueError, match=r"looks like .*, not 'queue'"):
        BrokerAddress.parse("old:1,queue")
    with pytest.raises(ValueError, match=r"looks like .*, not ''"):
        BrokerAddress.parse("old:1,")


def test_an_address_names_the_files_of_tls() -> None:
    parsed = BrokerAddress.parse("tls://queue:1?ca=/etc/a%20b/ca.pem&certificate=c.pem&key=c.key")
    assert parsed.tls == ClientFiles(Path("/etc/a b/ca.pem"), Path("c.pem"), Path("c.key"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("ca", "write \\?ca=FILE"),
        (
            "cafile=x",
            "no option 'cafile' here; use ca, certificate, key, user, password_file, read_from",
        ),
        ("key=x", "go together"),
        ("certificate=x", "go together"),
    ],
)
def test_options_that_say_nothing_are_refused(options: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        BrokerAddress.parse(f"tls://queue:1?{options}")


files = st.one_of(st.none(), st.text(min_size=1).map(Path))
pairs = st.one_of(st.just((None, None)), st.tuples(*(st.text(min_size=1).map(Path),) * 2))


@given(
    places=st.lists(
        st.tuples(st.sampled_from(["queue", "::1", "10.0.0.1"]), st.integers(0, 65_535)), min_size=1
    ),
    ca=files,
    pair=pairs,
    secured=st.booleans(),
    read_from=st.sampled_from(["leader", "replica"]),
)
def test_the_text_of_an_address_is_read_as_the_same_address(
    places: list[tuple[str, int]],
    ca: Path | None,
    pair: tuple[Path | None, Path | None],
    secured: bool,
    read_from: str,
) -> None:
    address = BrokerAddress(tuple(places), ClientFiles(ca, *pair) if secured else None)
    address = address.reading_from(read_from)
    assert BrokerAddress.parse(str(address)) == address


def test_an_address_names_the_server_of_reads() -> None:
    parsed = BrokerAddress.parse("tcp://a:1,b:2?read_from=replica")
    assert parsed == BrokerAddress((("a", 1), ("b", 2)), read_from="replica")
    assert str(parsed) == "tcp://a:1,b:2?read_from=replica"
    assert parsed.reading_from(None) is parsed
    assert str(parsed.reading_from("leader")) == "a:1,b:2"
    named = BrokerAddress.parse("nameserver://ns:9875/default?read_from=replica")
    assert (named.read_from, BrokerAddress.parse(str(named))) == ("replica", named)
    with pytest.raises(ValueError, match="read_from is leader or replica, not 'both'"):
        BrokerAddress.parse("tls://a:1?read_from=both")


def test_files_from_elsewhere_fill_in_what_the_address_leaves_open() -> None:
    own, given_ = ClientFiles(ca=Path("own.pem")), ClientFiles(Path("x.pem"), Path("c"), Path("k"))
    assert BrokerAddress.parse("queue:1").secured(own).tls == own
    both = BrokerAddress.parse("tls://queue:1?ca=own.pem").secured(given_)
    assert both.tls == ClientFiles(Path("own.pem"), Path("c"), Path("k"))
    with pytest.raises(ValueError, match="go together"):
        BrokerAddress.parse("queue:1").secured(ClientFiles(key=Path("k")))


def test_reasons_name_the_address_where_there_are_several() -> None:
    refused = ConnectionRefusedError("refused")
    assert reasons_of({("a", 1): refused}) == "refused"
    assert reasons_of({("a", 1): refused, ("::1", 2): TimeoutError()}) == (
        "a:1: refused; [::1]:2: TimeoutError"
    )


def test_an_address_of_name_servers_names_a_cluster_and_may_name_a_group() -> None:
    parsed = BrokerAddress.parse("nameserver://ns1:9875, [::1]:2/default")
    assert parsed.places == (("ns1", 9875), ("::1", 2))
    assert (parsed.tls, parsed.login, parsed.cluster) == (None, None, ClusterName("default"))
    assert parsed.may_move
    assert not BrokerAddress.parse("queue:1").may_move
    assert BrokerAddress.parse("a:1,b:1").may_move
    assert BrokerAddress.parse("nameserver://ns1:9875/a%2Fb/g1").cluster == ClusterName("a/b", "g1")


def test_an_address_of_name_servers_takes_tls_and_a_login() -> None:
    secured = BrokerAddress.parse("nameserver://ns:1/c?ca=ca.pem&user=ann&password_file=ann.txt")
    assert secured.tls == ClientFiles(Path("ca.pem"))
    assert secured.login == ClientLogin("ann", Path("ann.txt"))
    assert BrokerAddress.parse("nameserver+tls://ns:1/c").tls == ClientFiles()
    by_option = BrokerAddress.parse("nameserver://ns:1/c").secured(ClientFiles(Path("ca.pem")))
    assert str(by_option) == "nameserver+tls://ns:1/c?ca=ca.pem"


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("nameserver://ns:1", "name the cluster behind the name servers"),
        ("nameserver://ns:1/", "name the cluster behind the name servers"),
        ("nameserver://ns:1/a/b/c", "name the cluster behind the name servers"),
        ("nameserver://ns/default", "looks like"),
        ("nameserver:///default", "looks like"),
        ("nameserver://ann:s3cret@ns:1/default", "HEADRACE_USER"),
        ("nameserver://ns:1/default?password=s3cret", "no option 'password'"),
        ("nameserver://ns:1/default?key=k", "go together"),
    ],
)
def test_a_wrong_address_of_name_servers_is_refused(address: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        BrokerAddress.parse(address)
    assert "s3cret" not in traceback_of(refused.value)


names = st.text(min_size=1, max_size=9)


@given(name=st.builds(ClusterName, names, st.one_of(st.just(""), names)), ca=files)
def test_the_text_of_an_address_of_name_servers_is_read_as_the_same(
    name: ClusterName, ca: Path | None
) -> None:
    tls = None if ca is None else ClientFiles(ca)
    for login in (None, ClientLogin("ann", Path("ann.txt"))):
        address = BrokerAddress((("ns", 1),), tls, login, name)
        assert BrokerAddress.parse(str(address)) == address


def test_one_failure_stays_what_it_is_and_several_become_one() -> None:
    refused = ConnectionRefusedError("refused")
    assert failure_of({("a", 1): refused}) is refused
    assert "b:2: gone" in str(failure_of({("a", 1): refused, ("b", 2): OSError("gone")}))


def test_an_address_may_name_several_groups() -> None:
    address = "nameserver://h:1,i:2/c/g1,g2?read_from=replica"
    parsed = BrokerAddress.parse(address)
    assert parsed.groups == ("g1", "g2")
    assert str(parsed) == address
    assert {group: str(one) for group, one in parsed.of_each_group().items()} == {
        "g1": "nameserver://h:1,i:2/c/g1?read_from=replica",
        "g2": "nameserver://h:1,i:2/c/g2?read_from=replica",
    }
    with pytest.raises(ValueError, match="names the groups g1, g2"):
        parsed.of_one_group()
    one = BrokerAddress.parse("nameserver://h:1/c/g1")
    assert (one.groups, one.of_one_group()) == (("g1",), one)
    assert (
        BrokerAddress.parse("h:1").groups == BrokerAddress.parse("nameserver://h:1/c").groups == ()
    )


@pytest.mark.parametrize("groups", ["g1,", ",g1", "g1,g1", ","])
def test_an_address_names_each_group_once(groups: str) -> None:
    with pytest.raises(ValueError, match="name each group once"):
        BrokerAddress.parse(f"nameserver://h:1/c/{groups}")
