"""What a clean end leaves: read back as it was written, or refused for what it is."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import DataCorrupt
from headrace_mq.store.checkpoint import write_checkpoint
from headrace_mq.store.clean_end import CleanEnd, QueueEnd, read_clean_end, write_clean_end


def test_it_comes_back_as_it_was_and_a_missing_one_is_none(tmp_path: Path, files: Any) -> None:
    path = tmp_path / "store.checkpoint"
    assert read_clean_end(files, path) is None
    end = CleanEnd({"forever": 5}, [QueueEnd("orders", 1, "forever", 7)], {"forever": 3})
    write_clean_end(files, path, end)
    assert read_clean_end(files, path) == end


def test_a_checkpoint_of_something_else_is_damage(tmp_path: Path, files: Any) -> None:
    path = tmp_path / "store.checkpoint"
    write_checkpoint(files, path, b"\xa5hello")
    with pytest.raises(DataCorrupt, match="no checkpoint of a store"):
        read_clean_end(files, path)
