"""
Events for analysis: as typed DataFrames, and as Parquet.

Used by notebooks; reads the event topic.
"""
