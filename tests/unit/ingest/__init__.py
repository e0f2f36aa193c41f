"""Tests of lakesql.ingest."""
