#!/usr/bin/python3 -IS
"""Exit 0 when the service in this container takes work, 1 when it does not."""

import http.client
import os
import ssl
import sys

host = os.environ.get("SPLINECNN_HOST", "127.0.0.1")
host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
port = int(os.environ.get("SPLINECNN_PORT", "8000"))
connection: http.client.HTTPConnection
if os.environ.get("SPLINECNN_TLS_CERT"):
    # the certificate names the public host, not this one
    unchecked = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(host, port, timeout=2.5, context=unchecked)
else:
    connection = http.client.HTTPConnection(host, port, timeout=2.5)
try:
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
except OSError as error:
    sys.exit(f"not reachable: {error}")
if status != 200:
    sys.exit(f"not ready: /readyz answered {status}")
