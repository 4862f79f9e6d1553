"""Logs, metrics, probes and events."""
