"""
Event topic to read models, process managers and event handlers: the event side.

    projection   what a read model is           shape     the columns its row model stands for
    folding      events → row changes           gate      each version once and in order
    intake       which messages are new         applying  one batch in one transaction
    tables       row model ↔ SQL table          reader    reading the live rows
    generations  shadow tables and the switch   verify    two generations, row for row
    read_models  the database of all this       runner    the live loop
    workflows    what a process manager is      process_runner  its loop
    process      one with a state per instance  instance_runner its loop
    instances    one batch in one transaction   stuck     parked instances taken up again
    processes    what runs, what stands still   reacting  which loop a manager runs in
    event_handlers what calls what            handler_runner  their loop
    calling      a stream through handlers    standings what they have handled, and parked
    standing_letters parked ones taken up     handler_letters, process_letters  of each kind
    process_standings what process managers   outbox    where their commands go
                 have parked                  kept_commands  those in the database
    listening    what waits in vain           outages   failures that pass by themselves
    lag          how far behind projections are heartbeat beats, so that the lag is true
    alarms       parked aggregates, told        watching  all three, for an application

Sits between: the event topic, the event store, which fills gaps, and the database of read models.
Knows no command handler and no broker.
"""
