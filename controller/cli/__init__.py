"""The `ebb` command line."""
