"""The retirement protocol as pure decisions over a snapshot."""
