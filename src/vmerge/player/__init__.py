"""One stream: the player, its parts, and the board where players meet.

In here: ``player`` (read, batch, apply, commit), ``backlog`` and ``runs`` (what is read and not yet applied),
``checkpoint``; ``contention``, ``inquiry`` and ``joint`` (conflicts), ``quarantining``, ``schema_changes``; ``board``
and ``journal`` (what siblings and operators see); ``ends`` (source and target as protocols). Nothing in here knows
sockets, SQL, or how a player is started and ended.
"""
