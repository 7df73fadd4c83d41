"""
What can be asked of a broker and done with it: the same names in the command line, the pages and the JSON API.

    verb     what a verb is, and how its fields are read    topic, group, message, letters, broker   the verbs
    catalogue   all of them by their names

Used by the console's pages and its API; each verb asks the broker through `AdminClient`.
"""
