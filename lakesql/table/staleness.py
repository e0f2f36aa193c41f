"""The settings of how old a read-optimized view may be: an argument, of a connection, or a property of the table.

What they mean is in `services.freshness`; their names are here, for those who pass them on.
"""

MAX_STALENESS = "lakesql.read_optimized.max_staleness"
ON_STALE = "lakesql.read_optimized.on_stale"
