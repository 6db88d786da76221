"""Lets a Python program join a cluster through a dynamod of this machine.

Only the standard library is used. Before: eval "$(dynctl credentials --attach)"
"""

import contextlib
import json
import os
import signal
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STATUS = os.environ["DYNAMOD_STATUS"]
TOKEN = os.environ["DYNAMOD_ATTACH_TOKEN"]
TTL = 15  # seconds without a word after which dynamod lets go of this program


def request(method, path, body=None):
    """Asks the status server of dynamod."""
    r = urllib.request.Request(STATUS + path, method=method, headers={"Authorization": "Bearer " + TOKEN})
    r.data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(r, timeout=35) as answer:
        return json.load(answer)


def publish(service, topic, event):
    """Publishes an event in the name of an attached service."""
    request("POST", "/v1/services/%s/events/%s" % (service["id"], topic), event)


def serve(answer, **what):
    """Answers requests until SIGTERM or Ctrl-C.

    answer(request) yields the items of one answer. what is endpoint="dyn://..." or
    model={"name": ...}. A generator that is closed early has lost its caller.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.end_headers()
            with contextlib.suppress(ConnectionError), contextlib.closing(answer(json.loads(body or "null"))) as items:
                last = {"end": True}
                try:
                    for item in items:
                        self.line({"item": item})
                except ConnectionError:
                    raise
                except Exception as e:  # whatever fails, the caller hears of it
                    last = {"error": {"kind": "internal", "message": repr(e)}}
                self.line(last)

        def line(self, document):
            self.wfile.write(json.dumps(document).encode() + b"\n")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    what.update(url="http://127.0.0.1:%d/" % server.server_port, ttl_seconds=TTL)
    stop = threading.Event()
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: stop.set())
    service = None
    while not stop.is_set():
        try:
            service = request("POST", "/v1/services", what)  # the first one attaches, the others renew
        except OSError as e:
            print("dynamod does not take this program:", e.read().decode() if hasattr(e, "read") else e, flush=True)
        stop.wait(TTL / 3)
    if service:
        with contextlib.suppress(OSError):  # a dynamod that is gone has let go of this program
            request("DELETE", "/v1/services/" + service["id"])  # returns when running requests have ended
