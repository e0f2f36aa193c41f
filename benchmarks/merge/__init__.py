"""MERGE into one table by lakesql, DuckDB, DuckLake and deltalake, side by side: `python -m benchmarks.merge`."""
