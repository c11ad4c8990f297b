"""The files of config/monitoring/: promtool accepts them, and they use only metrics that exist."""
import json
import os
import re
import shutil
import subprocess

import harness

FOLDER = os.path.join(harness.CONFIG, "monitoring")
REFERENCE = harness.beamring("help", "--metrics").out


def promtool(*words, cwd=FOLDER):
    if shutil.which("promtool") is None:
        print("no promtool: not checked")
        return
    done = subprocess.run(["promtool", *words], cwd=cwd, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done


def known():
    """Names of series: those of the reference, and what a histogram has."""
    names = set(re.findall(r"^\| `(\w+)`", REFERENCE, re.M))
    for name in re.findall(r"^\| `(\w+)` \| histogram", REFERENCE, re.M):
        names |= {name + end for end in ("_bucket", "_sum", "_count")}
    return names | {"up"}


def asked(text):
    return set(re.findall(r"\b((?:beamring|process)_\w+)", text))


def expressions():
    dashboard = json.load(open(os.path.join(FOLDER, "dashboard.json")))
    return [t["expr"] for p in dashboard["panels"] for t in p["targets"]]


def test_alerts():
    promtool("check", "config", "prometheus.yaml")
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")
    for name in ("alerts.yaml", "alerts_test.yaml"):
        unknown = asked(open(os.path.join(FOLDER, name)).read()) - known()
        assert not unknown, f"{name} asks for what there is not: {unknown}"


def test_dashboard():
    texts = expressions()
    assert len(texts) > 15, texts
    unknown = asked(" ".join(texts)) - known()
    assert not unknown, f"the dashboard asks for what there is not: {unknown}"
    with harness.scratch() as d:  # each expression, as a rule of its own, is one that Prometheus can read
        rules = [{"record": f"panel:{i}", "expr": t.replace("$__rate_interval", "5m")} for i,
                 t in enumerate(texts)]
        with open(os.path.join(d, "rules.yaml"), "w") as f:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, f)
        promtool("check", "rules", "rules.yaml", cwd=d)
    dashboard = json.load(open(os.path.join(FOLDER, "dashboard.json")))
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]]
    assert len(set(places)) == len(places), "panels lie on each other"


if __name__ == "__main__":
    harness.main([test_alerts, test_dashboard])
