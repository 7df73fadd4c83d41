"""Users and rules are on disk before they take effect, and the last administrator stays."""

import errno
from pathlib import Path

import pytest

from headrace_mq._net.login import credentials_of
from headrace_mq.access.resources import Action, Ask, ResourceKind
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.users import user_book
from headrace_mq.broker.users.user_book import KeptUsers, UserBook
from headrace_mq.errors import InvalidArgument, StoreFull
from headrace_mq.protocol.access import Credentials, RuleEntry, SetUser

KEYS = Credentials(b"s" * 32, b"k" * 32, b"v" * 32, 4_096)
PUBLISH = Ask(Action.PUBLISH, ResourceKind.TOPIC, "orders")
RULE = RuleEntry("ann", "publish", "topic:orders", True)


@pytest.fixture
def book(tmp_path: Path) -> UserBook:
    book = UserBook(users_file(tmp_path))
    book.load()
    book.change(SetUser("add", "root", [KEYS], admin=1))
    book.change(SetUser("add", "ann", [KEYS], set_roles=True, roles=["clerks"]))
    return book


def again(tmp_path: Path) -> UserBook:
    book = UserBook(users_file(tmp_path))
    book.load()
    return book


def test_users_and_rules_hold_across_restarts(book: UserBook, tmp_path: Path) -> None:
    book.set_rule(RULE, remove=False)
    found = again(tmp_path)
    assert found.users() == book.users()
    assert found.rules() == [RULE]
    assert found.secret == book.secret
    assert found.credentials("ann") == KEYS
    assert found.policy.grants("ann").allows(PUBLISH)


def test_a_change_is_a_new_policy(book: UserBook) -> None:
    before = book.policy
    book.set_rule(RULE, remove=False)
    assert not before.grants("ann").allows(PUBLISH)
    assert book.policy.grants("ann").allows(PUBLISH)
    assert book.policy.version == before.version + 1


def test_a_removed_user_leaves_no_rules_to_a_later_one_of_its_name(book: UserBook) -> None:
    book.set_rule(RULE, remove=False)
    book.change(SetUser("remove", "ann"))
    book.change(SetUser("add", "ann", [KEYS]))
    assert book.rules("ann") == []


def test_a_disabled_user_has_no_credentials(book: UserBook) -> None:
    book.change(SetUser("change", "ann", disabled=1))
    assert book.credentials("ann") is None
    book.change(SetUser("change", "ann", disabled=0))
    assert book.credentials("ann") == KEYS


@pytest.mark.parametrize(
    "change",
    [
        SetUser("remove", "root"),
        SetUser("change", "root", disabled=1),
        SetUser("change", "root", admin=0),
    ],
)
def test_the_last_administrator_stays(book: UserBook, change: SetUser) -> None:
    with pytest.raises(InvalidArgument, match="last administrator"):
        book.change(change)
    book.change(SetUser("add", "other", [KEYS], admin=1))
    book.change(change)


def test_a_user_without_a_password_is_known_by_its_certificate_alone(book: UserBook) -> None:
    book.change(SetUser("add", "CN=reports,O=Bank"))
    assert book.is_certified("CN=reports,O=Bank")
    assert not book.is_certified("ann")
    assert book.credentials("CN=reports,O=Bank") is None


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (SetUser("add", "ann"), "there is a user"),
        (SetUser("change", "bob"), "there is no user"),
        (SetUser("remove", "bob"), "there is no user"),
        (SetUser("drop", "ann"), "added, changed or removed"),
        (SetUser("add", "a\n"), "cannot be the name"),
        (SetUser("add", "b", [Credentials(b"s" * 32, b"k", b"v" * 32, 4_096)]), "have 32 bytes"),
        (SetUser("add", "b", [Credentials(b"s", b"k" * 32, b"v" * 32, 4_096)]), "their salt 32"),
        (SetUser("add", "b", [Credentials(b"s" * 32, b"k" * 32, b"v" * 32, 100)]), "4096 to"),
        (
            SetUser("add", "b", set_roles=True, roles=[str(n) for n in range(65)]),
            "at most 64 roles",
        ),
    ],
)
def test_a_change_without_a_meaning_is_refused(
    book: UserBook, request_: SetUser, sentence: str
) -> None:
    before = book.users()
    with pytest.raises(InvalidArgument, match=sentence):
        book.change(request_)
    assert book.users() == before


def test_a_rule_needs_a_user_or_names_a_role(book: UserBook) -> None:
    with pytest.raises(InvalidArgument, match="no user 'bob'"):
        book.set_rule(RuleEntry("bob", "read", "cluster", True), remove=False)
    clerks = RuleEntry("role:clerks", "read", "cluster", True)
    book.set_rule(clerks, remove=False)
    assert book.rules("ann") == [clerks]
    book.set_rule(clerks, remove=True)
    with pytest.raises(InvalidArgument, match="no such rule"):
        book.set_rule(clerks, remove=True)


def test_users_have_a_bound(book: UserBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_book, "USERS_MAX", 2)
    with pytest.raises(InvalidArgument, match="at most 2 users"):
        book.change(SetUser("add", "bob"))


def test_a_full_disk_changes_nothing(book: UserBook, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: KeptUsers) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(book._file, "write", full)
    with pytest.raises(StoreFull):
        book.change(SetUser("add", "bob"))
    assert [one.name for one in book.users()] == ["ann", "root"]


def test_nothing_shows_what_passwords_are_checked_by(book: UserBook, tmp_path: Path) -> None:
    from pydantic import SecretStr

    made = credentials_of(SecretStr("pencil"))
    book.set_password("ann", made)
    kept = users_file(tmp_path).read()
    assert kept is not None
    shown = repr([kept, kept.users, made, book.users()])
    assert repr(made.stored_key) not in shown
    assert b"pencil" not in (tmp_path / "metadata" / "users.json").read_bytes()


def test_a_key_is_kept_and_replaced_and_a_user_with_one_needs_no_certificate(
    book: UserBook, tmp_path: Path
) -> None:
    book.change(SetUser("add", "bank", keys=[b"k" * 32]))
    assert again(tmp_path).public_key("bank") == b"k" * 32
    assert not book.is_certified("bank")
    assert book.credentials("bank") is None
    entry = book.change(SetUser("change", "bank", keys=[b"l" * 32]))
    assert (entry.key, entry.password) == (True, False)
    assert book.public_key("bank") == b"l" * 32
    with pytest.raises(InvalidArgument, match="32 bytes"):
        book.change(SetUser("change", "bank", keys=[b"short"]))
    book.change(SetUser("change", "bank", disabled=1))
    assert book.public_key("bank") == book.public_key("nobody") == b""
