"""
Options of `headrace broker` that say how messages are written and how long they are kept.

Each one is a setting of the store (`headrace_mq.settings.StoreSettings`); one that is not given is
left to the default there. Sits between: `broker` and the settings.
"""

from typing import Annotated

import typer

from headrace.cli.amounts import duration_ms, percent, size_bytes

__all__ = [
    "CompactDirty",
    "CompactInterval",
    "CompactLag",
    "CompactMemory",
    "CompactRate",
    "CompactSegmentSize",
    "DiskDelete",
    "DiskLook",
    "DiskRefuse",
    "FlushInterval",
    "FlushMode",
    "RetentionInterval",
    "SegmentSize",
    "SegmentsDeleted",
    "TailCache",
    "TombstoneAge",
    "TransientAge",
    "TransientSize",
    "UnconsumedAge",
]

SegmentSize = Annotated[
    int | None,
    typer.Option(
        "--segment-size", parser=size_bytes, metavar="SIZE", show_default="1GiB",
        help="Size of a log segment: the unit of deletion.",
    ),
]  # fmt: skip
FlushMode = Annotated[
    str | None,
    typer.Option(
        show_default="always",
        help="'always': an ack means the disk has it. 'interval': the page cache has it.",
    ),
]
FlushInterval = Annotated[
    int | None,
    typer.Option(
        "--flush-interval", parser=duration_ms, metavar="TIME", show_default="500ms",
        help="With --flush interval: what a power cut may take.",
    ),
]  # fmt: skip
TailCache = Annotated[
    int | None,
    typer.Option(
        "--tail-cache", parser=size_bytes, metavar="SIZE", show_default="4MiB",
        help="Memory for the newest messages of all queues.",
    ),
]  # fmt: skip
TransientAge = Annotated[
    int | None,
    typer.Option(
        "--transient-age", parser=duration_ms, metavar="TIME", show_default="72h",
        help="Age above which messages go, unless their topic is kept forever.",
    ),
]  # fmt: skip
TransientSize = Annotated[
    int | None,
    typer.Option(
        "--transient-size", parser=size_bytes, metavar="SIZE", show_default="0",
        help="Size above which the oldest of them go before their age; 0: no limit.",
    ),
]  # fmt: skip
UnconsumedAge = Annotated[
    int | None,
    typer.Option(
        "--unconsumed-age", parser=duration_ms, metavar="TIME", show_default="168h",
        help="Age up to which a message stays that some group has not consumed; 0: like any other.",
    ),
]  # fmt: skip
RetentionInterval = Annotated[
    int | None,
    typer.Option(
        "--retention-interval", parser=duration_ms, metavar="TIME", show_default="10s",
        help="How often old segments are looked for.",
    ),
]  # fmt: skip
SegmentsDeleted = Annotated[
    int | None,
    typer.Option(
        "--segments-deleted-max", metavar="NUMBER", show_default="10",
        help="Segments that go at a time.",
    ),
]  # fmt: skip
DiskRefuse = Annotated[
    int | None,
    typer.Option(
        "--disk-refuse", parser=percent, metavar="SHARE", show_default="90%",
        help="Share of the disk above which new messages are refused; 100%: never.",
    ),
]  # fmt: skip
DiskDelete = Annotated[
    int | None,
    typer.Option(
        "--disk-delete", parser=percent, metavar="SHARE", show_default="75%",
        help="Share of the disk above which consumed messages go before their age; 100%: never.",
    ),
]  # fmt: skip
DiskLook = Annotated[
    int | None,
    typer.Option(
        "--disk-look", parser=duration_ms, metavar="TIME", show_default="1s",
        help="How often the disk is looked at.",
    ),
]  # fmt: skip
CompactSegmentSize = Annotated[
    int | None,
    typer.Option(
        "--compact-segment-size", parser=size_bytes, metavar="SIZE", show_default="64MiB",
        help="Size of a file of compacted topics; the newest one is left alone.",
    ),
]  # fmt: skip
CompactDirty = Annotated[
    int | None,
    typer.Option(
        "--compact-dirty", parser=percent, metavar="SHARE", show_default="50%",
        help="Share of files not looked at yet from which on they are compacted.",
    ),
]  # fmt: skip
CompactInterval = Annotated[
    int | None,
    typer.Option(
        "--compact-interval", parser=duration_ms, metavar="TIME", show_default="15s",
        help="How often that is looked at.",
    ),
]  # fmt: skip
CompactLag = Annotated[
    int | None,
    typer.Option(
        "--compact-lag", parser=duration_ms, metavar="TIME", show_default="1m",
        help="How long every message to a compacted topic stays.",
    ),
]  # fmt: skip
TombstoneAge = Annotated[
    int | None,
    typer.Option(
        "--tombstone-age", parser=duration_ms, metavar="TIME", show_default="24h",
        help="How long a message without a body, which deletes its key, stays.",
    ),
]  # fmt: skip
CompactMemory = Annotated[
    int | None,
    typer.Option(
        "--compact-memory", parser=size_bytes, metavar="SIZE", show_default="128MiB",
        help="Memory for the keys of one compaction.",
    ),
]  # fmt: skip
CompactRate = Annotated[
    int | None,
    typer.Option(
        "--compact-rate", parser=size_bytes, metavar="SIZE", show_default="16MiB",
        help="What a compaction reads in a second; 0: all it can.",
    ),
]  # fmt: skip
