"""
Process managers: events in, commands out, with or without a state.

Sits between: the event topic and the command topic.
"""
