"""
Events for analysis: as typed DataFrames, and as Parquet.

Sits between: the event topic and notebooks.
"""
