"""Benchmarks of Kafka ingestion: `client` is what the Kafka client alone hands over, the line others are held against."""
