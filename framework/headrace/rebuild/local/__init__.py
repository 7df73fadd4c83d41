"""
A rebuild in this process: decode, fold in memory, write.

Reads the events; fills a shadow generation. It needs no Spark.
"""
