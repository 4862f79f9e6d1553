"""Waits, before SIGTERM, for the requests in flight: python3 -c <this> URL GRACE GAUGE...

Runs in the engine's own container. Serves out a settle time, then reads the gauges once a second until they are zero
twice in a row or the deadline comes. Exits 0 whatever happens: a hook that fails is only a hook that did not wait.
"""

import time

STARTED = time.monotonic()

SETTLE = 5.0  # a router may have chosen this replica in the instant before it learned of the delete
RESERVE = 5.0  # what the engine keeps of the grace period to stop in
INTERVAL = 1.0
READ_SECONDS = 2.0
WAIT_SECONDS = 1.0  # to connect, and for each piece of an answer
MAX_BYTES = 1048576
