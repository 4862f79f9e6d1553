"""Version v1alpha1 of the group `ebb.dev`."""
