"""
The verb about journeys: what happened to a message or a command.

Used by `catalogue` and `application`; it asks as `headrace message trace` does.
"""
