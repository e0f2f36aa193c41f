"""Compaction strategies side by side: a simulation over write patterns, and its cost model against real runs."""
