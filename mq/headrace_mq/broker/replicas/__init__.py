"""
A broker of a group and the others in it: what a leader gives its replicas, and what a replica does with it.

Used by the dispatcher and by `replicated_broker`, which decides which of both a broker is. Uses the rules of `cluster`, and
the store.
"""
