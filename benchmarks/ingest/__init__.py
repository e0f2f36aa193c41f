"""Ingestion measured, part by part."""
