"""
Append-only files: what the broker acknowledged stands here, in order, to the byte.

Reads top to bottom: `message_store` (what the broker sees) -> `recovery` (what a start makes of
the files) and `flusher` (when bytes become durable) -> `index_writer` (when an index is written) ->
`finding` (messages by key) and `compaction` (the last message of each key: `compaction_plan`,
`latest_keys` and `rewriting`) -> `commit_log` (segments in order), `sequences` (what producers sent),
`tail_cache` and `checkpoint` -> `log_index` -> `segment_index` (one index file), `queue_index`
(offset and time to position), `log_keys` -> `key_file` (one file of keys), `block_file` (what both
files have in common), `index_page` and `log_walk` -> `segment` (one file). `FORMAT.md` beside this
file draws every file to the byte.

Sits between: `broker` and the disk. Knows no sockets, and of payloads the keys alone.
Importable for the curious, but not promised: the wire is the queue's public door.
"""
