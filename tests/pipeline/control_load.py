"""The cost of watching: 1000 scrapes a second and ten live pages on a pipeline that runs as fast as it can.

    control_load.py [SECONDS] [STAGES]     default 60 s, 64 stages

Prints the throughput with and without, one after the other, and how long a scrape of so many stages takes
when nothing of it is kept. No test of the suite: its figures are those of a quiet machine."""
import http.client
import statistics
import sys
import threading
import time

from control_common import node

FAST = """pipeline:
  - {stage: t_source, samples: 1000000000000000, frame_samples: 65536, out: bytes}
  - {stage: t_pass, name: pass, in: bytes, out: passed}
  - {stage: t_sink, in: passed}
"""
SCRAPERS, SCRAPES, PAGES, PIECE_S = 4, 1000, 10, 5


class Clients:
    """Scrapes at a steady rate from some connections; pages as browsers ask for them."""

    def __init__(self, port):
        self.port, self.stop, self.times, self.late = port, threading.Event(), [], 0
        work = [self._scrape] * SCRAPERS + [self._page] * PAGES
        self.threads = [threading.Thread(target=w, daemon=True) for w in work]
        for t in self.threads:
            t.start()

    def _ask(self, connection, path):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)

    def _scrape(self):
        connection, due = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30), time.time()
        while not self.stop.is_set():
            due += SCRAPERS / SCRAPES
            time.sleep(max(0, due - time.time()))
            begin = time.time()
            self._ask(connection, "/metrics")
            self.times.append(time.time() - begin)
            self.late = max(self.late, begin - due)

    def _page(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.stop.wait(1):
            for path in ("/v1/status", "/v1/log?since=0", "/v1/preview?queue=passed&item=0"):
                self._ask(connection, path)

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()


def samples(n):
    queues = n.get("/v1/queues?now").json["queues"]
    return time.time(), next(q for q in queues if q["name"] == "passed")["samples"]


def rate(n):
    begin, before = samples(n)
    time.sleep(PIECE_S)
    end, after = samples(n)
    return (after - before) / (end - begin)


def watched_and_not(seconds):
    without, watched, took, scrapes = [], [], [], 0
    with node(FAST) as n:
        n.wait_until(lambda s: s["ready"])
        rate(n)
        for _ in range(max(1, round(seconds / PIECE_S))):
            without.append(rate(n))
            clients = Clients(n.port)
            time.sleep(0.5)
            watched.append(rate(n))
            clients.end()
            took += clients.times
            scrapes += len(clients.times) / (PIECE_S + 0.5)
        out = n.end()
        assert "balance: every sample is accounted for" in out, out
    took.sort()
    alone, both = statistics.median(without), statistics.median(watched)
    print(f"{alone * 1e-9:.3f} Gsamples/s alone, {both * 1e-9:.3f} watched: {both / alone:.4f}; "
          "every sample accounted for")
    print(f"{scrapes / len(watched):.0f} scrapes/s; of a client's time "
          f"{1e3 * took[len(took) // 2]:.2f} ms (median), {1e3 * took[int(0.99 * len(took))]:.2f} ms (99 %)")


def many_stages(count):
    text = "pipeline:\n  - {stage: t_source, samples: 1000000000000000, frame_samples: 4096, out: q0}\n"
    for i in range(count - 2):
        text += f"  - {{stage: t_pass, name: pass{i}, in: q{i}, out: q{i + 1}}}\n"
    text += f"  - {{stage: t_sink, pause_us: 100000, in: q{count - 2}}}\n"
    with node(text) as n:
        n.wait_until(lambda s: s["ready"])
        connection, took, size = http.client.HTTPConnection("127.0.0.1", n.port), [], 0
        for i in range(300):
            begin = time.time()
            connection.request("GET", f"/metrics?{i}")
            size = len(connection.getresponse().read())
            took.append(1e3 * (time.time() - begin))
        took.sort()
        print(f"a scrape of {count} stages, {size} bytes, nothing kept: {took[150]:.2f} ms (median), "
              f"{took[296]:.2f} ms (99 %)")
        n.end()


if __name__ == "__main__":
    many_stages(int(sys.argv[2]) if len(sys.argv) > 2 else 64)
    watched_and_not(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
