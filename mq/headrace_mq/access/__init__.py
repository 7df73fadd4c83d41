"""
Who may do what: users, roles, rules, and the decision. PURE.

    request code ─ needs ─▶ action on a resource ┐
    user, roles ───────────────────────────────── ┴─▶ policy ─▶ allowed or not, and by which rule

Used by the broker, which keeps the rules and asks before it serves a request; the command line reads and writes
their text. Uses the bodies of requests. It never knows connections, files or passwords.
"""
