"""The controller: runs the replicas of every ModelDeployment and takes them away without cutting a request."""
