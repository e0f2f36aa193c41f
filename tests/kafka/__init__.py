"""Kafka servers for tests: `mock` (inside the client library, starts at once), `broker` (Apache Kafka, needs Java)."""
