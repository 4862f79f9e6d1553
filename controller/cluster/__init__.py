"""Everything that speaks HTTP to Kubernetes."""
