"""Ingestion measured, part by part: `client` is what the Kafka client alone hands over, the line others are held against."""
