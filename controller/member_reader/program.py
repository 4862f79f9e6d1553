"""Looks once at what an engine holds: python3 -c <this text, made short> URL GAUGE...

Runs in the engine's own container by pods/exec; it reads and changes nothing. It prints the wanted sample lines
of the page at URL as they are, `#own` with the port of its own connection, one `#sock` line per TCP socket of
the serving port, `#error` in place of the samples when the page could not be had whole, and `#end` last, so
that a text cut short shows.
"""

import sys

if __name__ == "__main__":  # the modules of the image's working directory are not the library's
    sys.path = [folder for folder in sys.path if folder]
import os
import ssl
import threading
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit


def fetch(url: str, names: "tuple[str, ...]", lines: "list[str]") -> None:
    """Put into `lines` what is to be printed of the page, all at once and last."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            client: HTTPConnection = HTTPSConnection(parts.netloc, timeout=2, context=context)
        else:
            client = HTTPConnection(parts.netloc, timeout=2)
        client.request("GET", parts.path)
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
        wanted = [row for row in rows if (row.replace("{", " ").split(None, 1) or [""])[0] in names]
        lines[:] = ["#own %d" % own, *wanted]
    except Exception as error:
        lines[:] = ["#error %s: %s" % (type(error).__name__, error)]


def print_sockets(port: int) -> None:
    for table in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + table) as sockets:
                for row in sockets:
                    fields = row.split()
                    if fields[1].endswith(":%04X" % port):
                        print("#sock", *fields[1:5])
        except OSError:
            print("#unreadable", table)


def main(url: str, *names: str) -> None:
    lines: "list[str]" = []
    reading = threading.Thread(target=fetch, args=(url, names, lines), daemon=True)
    reading.start()
    reading.join(2)  # in all, however slowly the answer drips
    print(*(list(lines) or ["#error no whole answer in 2 s"]), sep="\n")
    print_sockets(urlsplit(url).port or 0)
    print("#end", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
