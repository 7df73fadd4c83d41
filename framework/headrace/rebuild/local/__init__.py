"""
A rebuild in this process: decode, fold in memory, write.

Sits between: the events and a shadow generation. Needs no Spark.
"""
