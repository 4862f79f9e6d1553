"""One adapter per router: what it lists, how it lets go of a replica, and what its answers prove."""
