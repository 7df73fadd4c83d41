"""What a clean end leaves: read back as it was written, or refused for what it is."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import DataCorrupt
from headrace_mq.store.log.clean_end import (
    CHECKPOINT_NAME,
    COPY_NAME,
    CleanEnd,
    QueueEnd,
    read_clean_end,
    read_either,
    write_both,
)
from headrace_mq.store.segment.checkpoint import write_checkpoint

END = CleanEnd({"forever": 5}, [QueueEnd("orders", 1, "forever", 7)], {"forever": 3})


def test_a_clean_end_is_read_as_it_was_written_and_a_missing_one_is_empty(
    tmp_path: Path, files: Any
) -> None:
    assert read_clean_end(files, tmp_path / CHECKPOINT_NAME) is None
    assert read_either(files, tmp_path) == (CleanEnd(), [])
    write_both(files, tmp_path, END)
    assert read_clean_end(files, tmp_path / CHECKPOINT_NAME) == END
    assert read_either(files, tmp_path) == (END, [])


def test_the_copy_counts_if_the_checkpoint_is_damaged_or_missing(
    tmp_path: Path, files: Any
) -> None:
    write_both(files, tmp_path, END)
    (tmp_path / CHECKPOINT_NAME).write_bytes(b"HRCHKPNT")
    found, damage = read_either(files, tmp_path)
    assert (found, [one.log for one in damage]) == (END, [CHECKPOINT_NAME])
    (tmp_path / COPY_NAME).write_bytes(b"")
    found, damage = read_either(files, tmp_path)
    assert (found, [one.log for one in damage]) == (CleanEnd(), [CHECKPOINT_NAME, COPY_NAME])
    write_both(files, tmp_path, END)
    (tmp_path / CHECKPOINT_NAME).unlink()
    assert read_either(files, tmp_path) == (END, [])


def test_a_checkpoint_of_something_else_is_damage(tmp_path: Path, files: Any) -> None:
    path = tmp_path / "store.checkpoint"
    write_checkpoint(files, path, b"\xa5hello")
    with pytest.raises(DataCorrupt, match="no checkpoint of a store"):
        read_clean_end(files, path)
