"""What suites and the demo share: objects to apply, a controller to start and kill, waits that say their reason."""
