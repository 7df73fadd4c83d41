"""
Tables in a data lake: the events and the read models of an application, and features as of a time.

`events` writes typed events to Parquet or Delta, `read_model` the rows of a projection to Delta, and
`features` folds a projection as of many times. Offsets are kept in what is written.
"""
