"""The file of tokens: read at the start, read again when it changes, refused with a sentence."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.access.principal import Principal
from headrace.errors import HeadraceError
from headrace.gateway.access.token_file import TokenFile


def test_a_new_token_is_good_and_a_removed_one_is_not_after_the_next_look(clients: Any) -> None:
    file = TokenFile(clients.path)
    bob = clients.tokens["bob"]
    assert file.find(bob) == Principal("bob")
    clients.remove("bob")
    clients.add("cid", "auditor")
    file.look()
    assert file.find(bob) is None
    assert file.find(clients.tokens["cid"]) == Principal("cid", frozenset({"auditor"}))


def test_the_last_tokens_stay_while_the_file_cannot_be_used(clients: Any) -> None:
    file = TokenFile(clients.path)
    clients.path.write_text("ann:clerk:oops")
    with capture_logs() as logs:
        file.look()
        file.look()
    assert [line["event"] for line in logs] == [
        "the new file of tokens cannot be used; the last tokens stay"
    ]
    assert file.find(clients.tokens["ann"]) is not None
    clients.path.unlink()
    file.look()
    assert file.find(clients.tokens["ann"]) is not None


def test_a_file_that_cannot_be_used_is_refused_with_what_to_do(
    clients: Any, tmp_path: Path
) -> None:
    with pytest.raises(HeadraceError, match=r"cannot be read .*headrace token make"):
        TokenFile(tmp_path / "none")
    clients.path.chmod(0o620)
    with pytest.raises(HeadraceError, match="run chmod go-w"):
        TokenFile(clients.path)
    clients.path.chmod(0o644)
    assert TokenFile(clients.path).find("x") is None
    clients.path.write_bytes(b"\xff")
    with pytest.raises(HeadraceError, match="cannot be read"):
        TokenFile(clients.path)
    clients.path.write_text("ann")
    with pytest.raises(HeadraceError, match="cannot be used: line 1"):
        TokenFile(clients.path)
