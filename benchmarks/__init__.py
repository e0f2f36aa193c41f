"""Benchmarks of lakesql against hand-written DuckDB and deltalake; see README.md."""
