"""
Process managers: events in, commands out, with or without a state.

Used by `App`; reads the event topic and sends commands to the command topic.
"""
