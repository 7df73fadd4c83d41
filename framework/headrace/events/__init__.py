"""
Stores decided events, then publishes them.

Used by `commands`, which decides; writes to the event store and the event topic. It calls no command
handler and answers no caller.
"""
