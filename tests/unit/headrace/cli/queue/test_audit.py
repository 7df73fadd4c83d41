"""`headrace audit` against a broker with a login, in a process of its own."""

import json
from typing import Any


def test_the_audit_lists_the_entries_that_options_choose(guarded: Any) -> None:
    assert guarded.ask("topic", "create", "audited").returncode == 0
    listed = guarded.ask("audit", "list", "--action", "create_topic")
    assert listed.returncode == 0, listed.stderr
    assert "topic:audited" in listed.stdout
    assert "login" not in listed.stdout
    (entry,) = json.loads(
        guarded.ask("audit", "list", "--action", "create_topic", "--by", "root", "--json").stdout
    )
    assert (entry["user"], entry["resource"], entry["outcome"]) == ("root", "topic:audited", "done")
    assert entry["address"].startswith("127.0.0.1:")
    for nothing in (("--by", "eve"), ("--since", "2999-01-01"), ("--outcome", "left out")):
        assert json.loads(guarded.ask("audit", "list", "--json", *nothing).stdout) == []


def test_the_end_of_the_audit_is_one_line_for_each_entry(guarded: Any) -> None:
    guarded.ask("topic", "create", "tailed")
    shown = guarded.ask("audit", "tail", "-n", "2")
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == 2
    lines = guarded.ask("audit", "tail", "--last", "5", "--json").stdout.splitlines()
    assert "topic:tailed" in {json.loads(line)["resource"] for line in lines}


def test_wrong_numbers_and_times_are_refused_in_one_line(guarded: Any) -> None:
    for wrong in (("list", "--limit", "0"), ("tail", "-n", "0"), ("list", "--since", "yesterday")):
        done = guarded.ask("audit", *wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_the_audit_needs_the_right_to_read_the_cluster(guarded: Any) -> None:
    added = guarded.ask(
        "user", "add", "ann", HEADRACE_NEW_PASSWORD_FILE=str(guarded.passwords["ann"])
    )
    assert added.returncode == 0, added.stderr
    refused = guarded.ask("audit", "list", user="ann")
    assert refused.returncode == 2
    assert "user 'ann' may not read cluster" in refused.stderr
    assert guarded.ask("acl", "allow", "ann", "read", "cluster").returncode == 0
    assert guarded.ask("audit", "tail", user="ann").returncode == 0
