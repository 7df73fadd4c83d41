"""
Rebuilds of declared projections from exported files, in columns: no Spark session, no Python per event.

Used by the command line and notebooks; uses the parts of an export and the rebuild without Spark.
"""
