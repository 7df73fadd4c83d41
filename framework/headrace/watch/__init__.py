"""
Lag, alarms and heartbeats of everything that reads events.

Used by a running application, for the people who operate it.
"""
