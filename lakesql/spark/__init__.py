"""The same statements on Spark: `lakesql.connect(engine="spark")`.

A connection is one of DuckDB as ever, on this machine, and a Spark session beside it. What reads or changes rows of Hudi
tables runs on Spark (`engine`, `changes`); what concerns a table as such, its timeline, files and settings, and everything
that is no Hudi table, runs here as it always does (`connection`). `answers` lists which statement does what. A statement
that Spark would answer otherwise is refused by name (`translate`, `casts`); docs/spark.md lists the differences that remain.

    translate   DuckDB's SQL in Spark's words, or a refusal
    casts       what Spark has bound, looked at for casts that change values
    reads       tables and handed-over rows as Spark's views
    engine      a query from text to rows
    changes     MERGE, UPDATE, DELETE and INSERT in one commit of Spark's
    sessions    the Spark session and its settings
"""
