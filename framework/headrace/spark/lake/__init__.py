"""
Tables in a data lake: the events and the read models of an application, and features as of a time.

Used by jobs and notebooks; reads the event topic, and keeps offsets in what is written.
"""
