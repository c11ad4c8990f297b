"""Stands in for an F-engine's controller: answers when sample 0 was, over HTTP."""
import http.server
import json
import threading


def time_of_sample_0(ns):
    """The answer of a controller: nanoseconds since 1970."""
    return json.dumps({"frame0_nano": ns})


class Controller:
    """Gives `answer`, which may be changed, to every request; `asked` counts them. Port 0: a free one."""

    def __init__(self, answer, port=0):
        outer = self
        self.answer, self.asked = answer, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                body = outer.answer.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/get-frame0-time"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
