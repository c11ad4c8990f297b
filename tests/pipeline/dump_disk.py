"""Dumps onto disks that are full, gone, or do not answer, and a thousand dumps of all kinds: the stream goes
on, and every one of them has an end that is told."""
import glob
import http.client
import json
import os
import random
import shutil

import dump_common
import harness

BAD_DISK = os.path.abspath(os.environ.get("BEAMRING_BAD_DISK", "build/tests/pipeline/libbad_disk.so"))
STATES = ("done", "empty", "failed", "cancelled")


class Disk:
    """The state of the dumps' disk."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "does")
        self.does("nothing")

    def does(self, what):
        with open(self.path + ".new", "w") as f:
            f.write(what)
        os.rename(self.path + ".new", self.path)


def bad_disk_node(directory, **parameters):
    env = {"LD_PRELOAD": BAD_DISK, "BAD_DISK": "/dumps", "BAD_DISK_DOES": os.path.join(directory, "does")}
    return dump_common.dump_node(dump_common.node_text(**parameters), filled=0.5, env=env)


def ended(node):
    """By state, what the metrics say of dumps that have ended."""
    metrics = node.metrics()
    return {s: metrics[f'beamring_dumps_total{{stage="dump",state="{s}"}}'] for s in STATES}


def files_of(node):
    found = glob.glob(os.path.join(node.directory, "dumps", "**"), recursive=True)
    return [path for path in found if os.path.isfile(path)]


def test_a_full_disk():
    """A dump that does not fit on the disk fails with the reason, leaves nothing behind, and the next one
    goes."""
    with harness.scratch() as control:
        disk = Disk(control)
        with bad_disk_node(control) as (node, source):
            for event, full in enumerate(("full", "full_late", "full_at_end")):
                disk.does(full)
                for kind in ("dada", "chime"):
                    number = 10 * event + (kind == "chime")
                    node.dump(id=number, start="earliest", samples=dump_common.PERIOD, format=kind)
                    document = node.wait_for(number)
                    assert document["state"] == "failed", document
                    assert "No space left" in document["reason"], document
                    assert document["files"] == {"failed": 4} and document["bytes"] == 0, document
                    assert files_of(node) == []
            disk.does("nothing")
            node.dump(id=50, start="earliest", samples=20000)
            document = node.wait_for(50)
            dump_common.check_dada(node.directory, document, source)
            assert ended(node) == {"done": 1, "empty": 0, "failed": 6, "cancelled": 0}
            assert "dump 0: 0 of 4 files are complete: no room for the" in node.err, node.err
            dump_common.check_live(node, source)


def test_a_directory_that_went_away():
    """It is made again; where it cannot be, the dump fails with the reason; what is there is not replaced."""
    with dump_common.dump_node(filled=0.5) as (node, source):
        dumps = os.path.join(node.directory, "dumps")
        shutil.rmtree(dumps)
        node.dump(id=1, start="earliest", samples=5000)
        dump_common.check_dada(node.directory, node.wait_for(1), source)
        shutil.rmtree(dumps)
        with open(dumps, "w") as f:
            f.write("a file")
        node.dump(id=2, start="earliest", samples=5000)
        document = node.wait_for(2)
        assert document["state"] == "failed" and "cannot make the directory dumps" in document[
            "reason"], document
        os.unlink(dumps)
        os.mkdir(dumps)
        there = os.path.join(dumps, "baseband_3_300.dada")
        with open(there, "w") as f:
            f.write("of somebody else")
        node.dump(id=3, start="earliest", samples=5000)
        document = node.wait_for(3)
        assert document["state"] == "failed" and "exists already" in document["reason"], document
        assert document["files"] == {"done": 3, "failed": 1}, document
        with open(there) as f:
            assert f.read() == "of somebody else"
        dump_common.check_live(node, source)


def test_a_disk_that_hangs():
    """A dump that waits for it fails in time, and says so; the stream goes on, and so do dumps afterwards."""
    with harness.scratch() as control:
        disk = Disk(control)
        with bad_disk_node(control, disk_timeout_s=0.5, max_dumps=8) as (node, source):
            disk.does("hangs")
            for event in range(8):
                node.dump(id=event, start="earliest", samples=20000)
            assert "max_dumps" in node.dump(503, id=8, start="earliest", samples=20000)["error"]
            first = [node.wait_for(0), node.wait_for(0)][0]
            assert first["state"] == "failed" and "has not answered for" in first["reason"], first
            assert node.post("/v1/dump/cancel", '{"id": 7}').code == 200
            node.wait_past(node.newest() + 10 * dump_common.FRAME)
            disk.does("nothing")
            for event in range(1, 7):
                document = node.wait_for(event)
                dump_common.check_dada(node.directory, document, source)
            assert node.wait_for(7)["state"] == "cancelled"
            names = files_of(node)
            assert not [n for n in names if "baseband_0_" in n or "baseband_7_" in n], names
            dump_common.check_live(node, source)


def test_the_end_while_a_disk_hangs():
    """The run ends all the same, in order."""
    with harness.scratch() as control:
        disk = Disk(control)
        with bad_disk_node(control, disk_timeout_s=0.3) as (node, source):
            disk.does("hangs")
            node.dump(id=1, start="earliest", samples=20000)
            node.dump(id=2, start="earliest", samples=20000)
            dump_common.check_live(node, source)
            assert "a disk does not answer" in node.err, node.err
            disk.does("nothing")


def test_a_thousand_dumps():
    """Dumps of the past, of the future, of nothing and of everything, again and again, on a disk that is full
    now and then and a directory that goes away: each is refused or has an end, and the stream loses
    nothing."""
    rng = random.Random(5)
    with harness.scratch() as control:
        disk = Disk(control)
        with bad_disk_node(control, max_dumps=200) as (node, source):
            connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
            codes, accepted, pinned = {}, [], []
            for event in range(1000):
                if event % 100 == 0:
                    disk.does(rng.choice(["full", "full_late", "nothing"]))
                    newest = node.newest()
                if event % 250 == 200:
                    shutil.rmtree(os.path.join(node.directory, "dumps"), ignore_errors=True)
                start = rng.choice([{"sample": max(newest - rng.randrange(500000),
                                                   0)}, {"time_ns": 0}, "earliest", {"time_ns": 4 * 10**18},
                                    {"sample": newest + rng.randrange(300000)}, {"sample": newest}])
                request = {
                    "id": event, "start": start, "samples": rng.choice([0, -1, 1, 500, 2000, 10**9]),
                    "dm": rng.choice([0, 0, 0, 7, -3]), "dm_error": rng.choice([0, 1]),
                    "freq_ref_mhz": rng.choice([400, 600, 800]), "format": rng.choice(["dada", "chime"])
                }
                connection.request("POST", "/v1/dump", json.dumps(request))
                answer = connection.getresponse()
                body = json.loads(answer.read())
                codes[answer.status] = codes.get(answer.status, 0) + 1
                if answer.status == 202:
                    accepted.append(event)
                    pinned.append(body["pinned_after_seconds"])
                if rng.random() < 0.05 and accepted:
                    connection.request("POST", "/v1/dump/cancel", json.dumps({"id": rng.choice(accepted)}))
                    answer = connection.getresponse()
                    answer.read()
                    assert answer.status in (200, 404, 409)
            connection.close()
            disk.does("nothing")
            assert set(codes) <= {202, 400, 409, 503} and len(accepted) > 100 and codes[400] > 100, codes
            node.wait_until(lambda s: node.metrics()['beamring_dumps_active{stage="dump"}'] == 0, seconds=120)
            node.dump(id=5000, start="earliest", samples=2000)
            node.wait_for(5000)
            dump_common.check_dada(node.directory, node.dumps(5000)[0], source)
            over = ended(node)
            assert sum(over.values()) == len(accepted) + 1 and over["done"] > 50, over
            assert not [n for n in files_of(node) if n.endswith(".part")]
            pinned.sort()
            print(f"{codes}, {over}; pinned within {1e3 * pinned[len(pinned) * 99 // 100]:.3f} ms (p99)")
            dump_common.check_live(node, source)


if __name__ == "__main__":
    if not os.path.exists(BAD_DISK):
        print(f"there is no {BAD_DISK}")
        raise SystemExit(77)
    dump_common.main([test_a_full_disk, test_a_directory_that_went_away, test_a_disk_that_hangs,
                  test_the_end_while_a_disk_hangs, test_a_thousand_dumps])
