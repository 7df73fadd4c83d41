"""`headrace user` and `headrace acl` against a broker with a login, in a process of its own."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli import _command_line
from headrace_mq.errors import NotPermitted


def test_an_administrator_lets_a_user_in_and_says_what_it_may_do(guarded: Any) -> None:
    added = guarded.ask(
        "user", "add", "ann", HEADRACE_NEW_PASSWORD_FILE=str(guarded.passwords["ann"])
    )
    assert (added.returncode, added.stdout) == (0, "ann: user, logs in with a password\n"), (
        added.stderr
    )
    refused = guarded.ask("topic", "create", "orders", user="ann")
    assert refused.returncode == 2
    assert "user 'ann' may not create topic:orders" in refused.stderr
    why = guarded.ask("acl", "explain", "ann", "create", "topic:orders")
    assert (why.returncode, why.stdout) == (
        1,
        "ann may not create topic:orders: no rule allows it\n",
    )
    assert (
        guarded.ask("acl", "allow", "ann", "*", "topic:ord*").stdout == "allow ann * topic:ord*\n"
    )
    assert guarded.ask("topic", "create", "orders", user="ann").returncode == 0
    why = guarded.ask("acl", "explain", "ann", "create", "topic:orders")
    assert why.stdout == "ann may create topic:orders: this rule decides: allow ann * topic:ord*\n"
    assert guarded.ask("acl", "deny", "ann", "delete", "topic:orders").returncode == 0
    assert "deny" in guarded.ask("acl", "list", "ann").stdout
    assert guarded.ask("acl", "remove", "ann", "delete", "topic:orders").returncode == 0
    assert "deny" not in guarded.ask("acl", "list").stdout
    assert guarded.ask("user", "disable", "ann").stdout.startswith("ann: disabled")
    assert "does not let 'ann' in" in guarded.ask("topic", "list", user="ann").stderr
    assert guarded.ask("user", "enable", "ann").returncode == 0
    assert guarded.ask("user", "roles", "ann", "--role", "clerks").stdout.endswith("roles clerks\n")
    assert "clerks" in guarded.ask("user", "list").stdout
    assert guarded.ask("user", "remove", "ann").stdout == "ann: removed\n"
    said = guarded.log.read_text()
    assert "audit" in said
    assert "set_rule" in said
    assert "the password of" not in said


# Each command that asks a broker, with what it needs at least.
VERBS: dict[str, tuple[str, ...]] = {
    "topic list": (),
    "topic show": ("t",),
    "topic create": ("t",),
    "topic add-queues": ("t", "--to", "9"),
    "topic freeze": ("t", "--writing"),
    "topic thaw": ("t", "--writing"),
    "topic delete": ("t",),
    "group list": (),
    "group show": ("g",),
    "group set": ("g", "--consume", "off"),
    "group reset": ("g", "--latest"),
    "group undo": ("g",),
    "group clone": ("g", "h"),
    "group limit": ("g", "--messages", "1"),
    "group limits": (),
    "group delete": ("g",),
    "message dead": ("g",),
    "message resend": ("g", "--all"),
    "message purge": ("g", "--before", "2999-01-01"),
    "message show": ("t:0:0",),
    "message skip": ("t:0:0", "--group", "g"),
    "message trace": ("t:0:0",),
    "message find": ("t", "k"),
    "message list": ("t", "--offset", "0"),
    "message tail": ("t",),
    "message search": ("t", "_key = 'k'"),
    "message send": ("t", "x"),
    "producer list": (),
    "quota set": ("topic", "t", "produce-messages=1"),
    "quota remove": ("topic", "t"),
    "quota list": (),
    "user add": ("eve", "--certificate"),
    "user password": ("root",),
    "user key": ("root", "KEY"),
    "user roles": ("root",),
    "user disable": ("root",),
    "user enable": ("root",),
    "user remove": ("root",),
    "user list": (),
    "acl allow": ("eve", "read", "cluster"),
    "acl deny": ("eve", "read", "cluster"),
    "acl remove": ("eve", "read", "cluster"),
    "acl list": (),
    "acl explain": ("eve", "read", "cluster"),
    "audit list": (),
    "audit tail": (),
    "broker show": (),
    "broker connections": (),
}
# Of the queue's commands, those that do not ask a broker, or ask one in the work of an application.
ELSEWHERE = {
    "topic copy",
    # Asks each of several groups, as `AdminClient` does.
    "topic spread",
    "cluster ack",
    "cluster brokers",
    "cluster promote",
    "cluster remove",
    "cluster settle",
    "cluster status",
    "cluster switchover",
    "store check",
    "store lost",
    "store repair",
    "store selftest",
}
QUEUE = (
    "topic",
    "group",
    "message",
    "producer",
    "quota",
    "user",
    "acl",
    "audit",
    "broker",
    "cluster",
    "store",
)


def test_the_table_has_every_command_that_asks_a_broker() -> None:
    line: Any = typer.main.get_command(_command_line())
    context = line.make_context("headrace", ["--help"], resilient_parsing=True)
    found = {
        f"{name} {verb}" for name in QUEUE for verb in line.get_command(context, name).commands
    }
    assert found == set(VERBS) | ELSEWHERE


@pytest.fixture(scope="module")
def poor(guarded: Any) -> Any:
    """A user without any rule."""
    file = guarded.passwords["root"].with_name("poor")
    file.write_text("the password of poor\n")
    file.chmod(0o600)
    done = guarded.ask("user", "add", "poor", HEADRACE_NEW_PASSWORD_FILE=str(file))
    assert done.returncode == 0, done.stderr
    key = file.with_name("key")
    assert CliRunner().invoke(_command_line(), ["certificates", "key", str(key)]).exit_code == 0
    return {
        "KEY": str(key),
        "HEADRACE_BROKER": guarded.address, "HEADRACE_USER": "poor", "TERM": "dumb",
        "HEADRACE_PASSWORD_FILE": str(file), "HEADRACE_NEW_PASSWORD_FILE": str(file),
    }  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_user_without_permission_gets_one_line_from_each_command(
    poor: dict[str, str], verb: str
) -> None:
    given = [poor["KEY"] if one == "KEY" else one for one in VERBS[verb]]
    done = CliRunner().invoke(_command_line(), [*verb.split(), *given], env=poor)
    assert isinstance(done.exception, NotPermitted), (done.output, done.exception)
    sentence = str(done.exception)
    assert "\n" not in sentence
    assert "'poor' may not" in sentence
    assert len(sentence) < 200
