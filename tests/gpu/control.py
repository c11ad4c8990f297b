"""A node whose stages run on a GPU: the slow one is named, its GPU time told, and restarts leak nothing."""
import os
import re
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import harness  # noqa: E402
from control_common import node  # noqa: E402

SLOW = """device: cuda:0
pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_gpu, name: quick, in: bytes, out: a}
  - {stage: t_gpu, name: slow, mode: slow, in: a, out: b}
  - {stage: t_gpu, name: behind, in: b, out: c}
  - {stage: t_sink, in: c}
"""


def device_memory():
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(words, text=True, capture_output=True, check=True).stdout.split()[0])


def test_slow_stage():
    with node(SLOW) as n:
        begin = time.time()
        status = n.wait_until(lambda s: s["held_up"] and s["held_up"]["stage"] == "slow", what="its name")
        print(f"{time.time() - begin:.2f} s: {status['sentence']}")
        assert "its work on cuda:0 takes" in status["held_up"]["cause"], status["held_up"]
        metrics = n.metrics()
        seconds = metrics['beamring_stage_gpu_sampled_seconds_total{stage="slow"}']
        calls = metrics['beamring_stage_gpu_sampled_calls_total{stage="slow"}']
        assert calls > 0 and seconds / calls > 0.001, (seconds, calls)
        quick = metrics['beamring_stage_gpu_sampled_seconds_total{stage="quick"}']
        assert quick < seconds / 5, (quick, seconds)
        n.end()


def test_a_hundred_restarts():
    text = SLOW.replace("mode: slow, ", "")
    with node(text, command="serve") as n:
        seen = []
        for i in range(1, 101):
            n.wait_until(lambda s: s["state"] == "running" and s["restarts"] == i - 1)
            assert n.post("/v1/restart").code == 202
            n.wait_until(lambda s: s["restarts"] == i and s["ready"])
            pid = n.process.pid
            host = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) * 1024
            count = [len(os.listdir(f"/proc/{pid}/{what}")) for what in ("fd", "task")]
            seen.append((host, *count, device_memory()))
        early, late = seen[20], seen[-1]
        print(f"bytes resident, descriptors, threads, MiB of the GPU: {early}, 79 restarts later {late}")
        assert late[0] - early[0] < 8 << 20, (early, late)
        assert late[1] <= early[1] + 1 and late[2] <= early[2], (early, late)
        assert late[3] <= early[3] + 2, (early, late)
        n.end(status=0)


def test_previews():
    """Queues that the host sees have previews, those between two GPU stages say why they have none."""
    with node(SLOW) as n:
        n.wait_until(lambda s: s["ready"])
        for queue in [q["name"] for q in n.get("/v1/graph").json["queues"] if q["name"] not in ("a", "b")]:
            answer = n.ask("/v1/preview?queue=" + urllib.parse.quote(queue))
            assert answer.code == 200, (queue, answer.text)
        answer = n.get("/v1/preview?queue=a")
        assert answer.code == 404 and "GPU" in answer.json["error"], answer.text
        n.end()


def test_processors():
    """Threads of GPU stages share a processor. Where there are many, other stages leave it to them."""
    with node(SLOW) as n:
        n.wait_until(lambda s: s["ready"])
        may_run_on = {}
        for thread in os.listdir(f"/proc/{n.process.pid}/task"):
            with open(f"/proc/{n.process.pid}/task/{thread}/comm") as f:
                may_run_on[f.read().strip()] = os.sched_getaffinity(int(thread))
        home, ours = may_run_on["slow"], os.sched_getaffinity(0)
        assert len(home) == 1 and may_run_on["quick"] == may_run_on["behind"] == home, may_run_on
        others = ours - home if len(ours) > 8 else ours
        for name in ("t_source", "t_sink", "updates"):
            assert may_run_on[name] == others, (name, may_run_on)
        assert os.sched_getaffinity(n.process.pid) == ours
        n.end()


if __name__ == "__main__":
    if not harness.has_device("cuda:0"):
        print("no GPU: skipped")
        sys.exit(77)
    harness.main([test_slow_stage, test_a_hundred_restarts, test_previews, test_processors])
