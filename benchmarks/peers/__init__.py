"""Queues that a team would pick instead, at the same work, in the same run."""
