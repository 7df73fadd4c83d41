"""
Append-only files that hold every acknowledged message, in order.

Reads top to bottom: `message_store` (what the broker sees) -> `log.recovery` (what a start makes of
the files) and `log.flusher` (when bytes become durable) -> `log.index_writer` (when an index is written) ->
`log.lookup` (messages by key) and `compaction.compaction` (the last message of each key: `compaction.plan`,
`compaction.latest_keys` and `compaction.rewrite`) -> `log.commit_log` (segments in order), `index.sequences` (what producers sent),
`segment.checkpoint` -> `index.log_index` -> `index.segment_index` (one index file), `index.queue_index`
(offset and time to position), `keys.log_keys` -> `keys.key_file` (one file of keys), `segment.block_file` (what both
files share), `index.page` and `segment.log_walk` -> `segment.segment` (one file). `FORMAT.md` next to this
file draws every file to the byte.

Used by `broker` and `archive`; reads and writes the disk. It knows no sockets, and only the keys of payloads.
You can import it, but its names may change: the wire is the queue's public interface.
"""
