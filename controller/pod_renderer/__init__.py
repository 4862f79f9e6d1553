"""Rendering: from one seat of a ModelDeployment to the objects that Kubernetes is given. Pure."""
