"""
What watches the readers of events: lag, alarms, heartbeats.

Watches the readers of events, for the people who operate them.
"""
