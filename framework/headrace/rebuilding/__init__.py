"""
Rebuilding read models beside the live ones: what every engine does, and the engine without Spark.

    replay    several in this process, in one pass part      one projection in that pass
    building  a shadow from its begin to its end   owner     who is rebuilding
    switch    catch up, compare, switch            phases    what a rebuild is doing, and for how long
    topic     the event topic, read by offsets     report    what was done
    gathering rows ahead of their table            decoding  messages to events that are wanted
    memory    rows and versions, by aggregate or key   checking  compare, and drop what was built
    stored    the event store, read by positions      level     catch up with the store, compare, switch
    promotion a finished table put in place

Sits between: the command line and Spark, which ask for it, and the folds, the event topic and the
tables of read models.
"""
