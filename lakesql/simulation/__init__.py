"""Compaction strategies without a table: write patterns, a simulated table, and the planning functions that decide for it.

    patterns     how many records each commit brings to each file group
    world        the table, its clock and its compactor; what readers see meanwhile
    strategies   Hudi's and ours, asked as a real table asks them

Nothing is read or written. `benchmarks.compaction` compares strategies by it, `lakesql.plot` draws it.
"""
