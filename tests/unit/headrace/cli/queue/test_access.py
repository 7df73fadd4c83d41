"""`headrace user` and `headrace acl` against a broker with a login, in a process of its own."""

from typing import Any


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
