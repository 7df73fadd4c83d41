"""
What watches the readers of events: lag, alarms, heartbeats.

Sits between: the readers and the people who operate them.
"""
