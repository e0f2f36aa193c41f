"""Kafka ingestion: from topics to Hudi tables and to Avro or Parquet folders, exactly once.

    job         what is asked: topics, offsets, limits, format, target (`settings`, `jobfile`, or the SQL front end)
    state       the offsets of the run before, which lie in the target itself
    plan        a half-open range of offsets per topic partition, packed into tasks; fixed before anything is read
    read        each task reads its ranges with an assigned consumer, in batches of Arrow columns
    decode      bytes to columns; what cannot be decoded goes to the quarantine
    sink        rows wait outside the target until the commit
    commit      data and offsets become visible in one step, if the offsets are still those that the run began with

`model` has the values and protocols between the steps, `run` joins them. The steps do not import each other.
"""
