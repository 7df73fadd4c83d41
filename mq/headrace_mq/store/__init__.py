"""
Append-only files that hold every acknowledged message, in order.

Reads top to bottom: `message_store` (the broker's interface) -> `log.recovery` (reads the files at
start) and `log.flusher` (makes bytes durable; `log.commit_gate` holds them until replicas have them) -> `log.index_writer` (writes the indexes) ->
`log.lookup` (messages by key) and `compaction.compaction` (the last message of each key: `compaction.plan`,
`compaction.latest_keys` and `compaction.rewrite`) -> `log.commit_log` (segments in order), `index.sequences` (the producers' last batches),
`segment.checkpoint` -> `index.log_index` -> `index.segment_index` (one index file), `index.queue_index`
(offset and time to position), `keys.log_keys` -> `keys.key_file` (one file of keys), `segment.block_file` (the common form of both files), `index.page` and `segment.log_walk` -> `segment.segment` (one file). `FORMAT.md` next to this
file draws every file to the byte.

Used by `broker` and `archive`; reads and writes the disk. It knows no sockets, and reads only the keys in payloads.
You can import it, but its names may change: the wire is the queue's public interface.
"""
