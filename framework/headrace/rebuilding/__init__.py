"""
Rebuilding read models beside the live ones: what every engine does, and the engine without Spark.

    replay    the whole rebuild in this process    building  a shadow from its begin to its end
    switch    catch up, compare, switch            phases    what a rebuild is doing, and for how long
    topic     the event topic, read by offsets     owner     who is rebuilding
    gathering rows in memory, ahead of the table   report    what was done

Sits between: the command line and Spark, which ask for it, and the folds, the event topic and the
tables of read models.
"""
