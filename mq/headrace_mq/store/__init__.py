"""
Append-only files: what the broker acknowledged stands here, in order, to the byte.

Reads top to bottom: `message_store` (what the broker sees) -> `log.recovery` (what a start makes of
the files) and `log.flusher` (when bytes become durable) -> `log.index_writer` (when an index is written) ->
`log.lookup` (messages by key) and `compaction.compaction` (the last message of each key: `compaction.plan`,
`compaction.latest_keys` and `compaction.rewrite`) -> `log.commit_log` (segments in order), `index.sequences` (what producers sent),
`segment.checkpoint` -> `index.log_index` -> `index.segment_index` (one index file), `index.queue_index`
(offset and time to position), `keys.log_keys` -> `keys.key_file` (one file of keys), `segment.block_file` (what both
files have in common), `index.page` and `segment.log_walk` -> `segment.segment` (one file). `FORMAT.md` beside this
file draws every file to the byte.

Sits between: `broker` and the disk. Knows no sockets, and of payloads the keys alone.
Importable for the curious, but not promised: the wire is the queue's public door.
"""
