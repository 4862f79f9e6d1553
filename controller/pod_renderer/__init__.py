"""From a spec to the Kubernetes objects that carry it: pure functions, one builder per fragment."""
