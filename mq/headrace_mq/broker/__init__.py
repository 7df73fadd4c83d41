"""
The broker: one process that takes messages, keeps them and hands them out.

Reads top to bottom: `server` (wiring, start and stop) -> `dispatcher` (code to handler, exception
to code) -> `handlers` (one plain function per request) -> `state` (what they share): `topics.topics` and
`groups.offsets` (durable, each in a `files.metadata_file`), `groups.members` (pure), `fetch.long_poll`, `acknowledgements`.
`fetch.filter_workers` has filtered backlogs looked through by processes of their own.
Next to them run `topics.deletion` (what retention lets go) and `topics.disk` (when new messages are refused);
`reader_mode` starts a broker for readers where the disk takes no writes at all, `reads` serves readers at a replica, `storage` opens what it
keeps messages in, and `flushes` writes what requests change in memory;
`metadata` says which files the broker keeps and how they are repaired.

Used by the command line and by applications; uses `_net`, which moves its frames, and `store`, which keeps
its messages. Importable for the curious, not promised: the public doors are the command line, the wire, and
`headrace_mq.Broker`.
"""
