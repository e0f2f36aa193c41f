"""Table services: what keeps a table readable and small beside the writes, and undoes mistakes.

Each service is one module with the same two verbs, `schedule` (decide, under the table's lock, and leave a plan on the
timeline) and `run` (carry a plan out); `action` is the protocol they share. They never import each other.
`maintenance` does after a write what the table's settings ask for.

To add a service: one module, and its entries in `maintenance`. Nothing is imported here, so that whoever needs one
service does not load all of them.
"""
