"""
Event handlers: functions that act on the world, at least once per event, in order.

Used by `App`; reads the event topic and calls your functions.
"""
