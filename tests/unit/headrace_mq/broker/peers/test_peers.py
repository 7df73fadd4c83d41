import pytest

from headrace_mq.broker.peers.peers import Peer


@pytest.mark.parametrize(
    ("produced", "reads", "member", "roles"),
    [
        (0, False, False, []),
        (3, False, False, ["producer"]),
        (0, True, False, ["reader"]),
        (0, True, True, ["consumer"]),
        (0, False, True, ["consumer"]),
        (1, True, True, ["producer", "consumer"]),
    ],
)
def test_the_requests_of_a_client_show_its_kind(produced, reads, member, roles) -> None:
    peer = Peer(software="x", since_ms=0, produced=produced, reads=reads)
    assert peer.roles(member=member) == roles
