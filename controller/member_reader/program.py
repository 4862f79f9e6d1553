"""Looks once at what an engine holds: python3 -c <this text, made short> URL GAUGE...

Runs in the engine's own container by pods/exec; it reads and changes nothing. It prints the wanted sample lines
of the page at URL as they are, `#own` with the port of its own connection, one `#sock` line per TCP socket of
the serving port, `#error` in place of the samples when the page could not be had whole, and `#end` last, so
that a text cut short shows.
"""

import sys

sys.path = [folder for folder in sys.path if folder]  # not the modules of the image's working directory
import os
import ssl
import threading
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

url = urlsplit(sys.argv[1])
lines: "list[str]" = []


def fetch() -> None:
    try:
        if url.scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            client: HTTPConnection = HTTPSConnection(url.netloc, timeout=2, context=context)
        else:
            client = HTTPConnection(url.netloc, timeout=2)
        client.request("GET", url.path)
        own = client.sock.getsockname()[1]
        answer = client.getresponse()
        page = answer.read(1048577)
        if answer.status != 200:
            raise ValueError("HTTP status %d" % answer.status)
        if len(page) > 1048576:
            raise ValueError("more than 1048576 bytes")
        if answer.length or page[-1:] not in (b"", b"\n"):
            raise ValueError("a body cut short")
        rows = page.decode("ascii", "backslashreplace").split("\n")
        wanted = [row for row in rows if (row.replace("{", " ").split(None, 1) or [""])[0] in sys.argv[2:]]
        lines[:] = ["#own %d" % own, *wanted]
    except Exception as error:
        lines[:] = ["#error %s: %s" % (type(error).__name__, error)]


reading = threading.Thread(target=fetch, daemon=True)
reading.start()
reading.join(2)  # in all, however slowly the answer drips
print(*(list(lines) or ["#error no whole answer in 2 s"]), sep="\n")
for table in ("tcp", "tcp6"):
    try:
        with open("/proc/net/" + table) as sockets:
            for row in sockets:
                fields = row.split()
                if fields[1].endswith(":%04X" % (url.port or 0)):
                    print("#sock", *fields[1:5])
    except OSError:
        print("#unreadable", table)
print("#end", flush=True)
os._exit(0)
