"""
The verbs about journeys: what happened to a message or a command, and an application's commands in flight and results.

Used by `catalogue` and `application`; they ask as `headrace message trace` and `headrace command` do.
"""
