"""
Where the record of a group is kept: `memory` for tests, `postgres` for the database that a team has, `etcd` instead of that.

Used by the owner of a member; implements the port of `record`. One suite, `headrace_mq.testing.conformance.record`, holds all of
them to the same promises.
"""
