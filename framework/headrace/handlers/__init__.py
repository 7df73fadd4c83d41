"""
Event handlers: functions that act on the world, at least once per event, in order.

Sits between: the event topic and the application's functions.
"""
