"""Reading the work of one engine from inside its own container."""
