"""The report of a soak, as text and as a picture."""


def slopes(when, s):
    return f"{s['minutes']:.1f} min {when}: " + ", ".join(
        f"{k} {v['mean']:.0f} {v['per_hour']:+.0f} +- {v['error']:.0f} per hour"
        for k, v in s.items() if k != "minutes")


def text(r):
    if len(r["boards"]["slots"]) > 16:
        r["boards"] = {name: [sum(row)] for name, row in r["boards"].items()}
    lines = [f"soak: seed {r['seed']}, {r['seconds']:g} s, {len(r['faults'])} faults, {r['processes']} "
             f"processes, {r['pipelines']} pipelines, {r['resets']} resets", "",
             "packets of each board" + "".join(f"{b:>10}" for b in range(len(r["boards"]["slots"])))]
    lines += [f"  {name:<19}" + "".join(f"{n:>10}" for n in row) for name, row in r["boards"].items()]
    lines += ["", f"the F-engine was {r['sent_late_s'] * 1e3:.0f} ms late at most",
              "sent: " + ", ".join(f"{n} {k}" for k, n in r["sent"].items()),
              "what became of them: " + ", ".join(f"{n} {k}" for k, n in r["packets"].items() if n),
              f"lost without a reason: {r['unexplained']}",
              f"not compared, since the log calls their times doubtful: {r['in_doubt']}", ""]
    for n, peer in enumerate(r["receivers"]):
        lines.append(f"receiver {n}: " + ", ".join(f"{v} {k}" for k, v in peer.items()))
    lines.append("requests: " + ", ".join(f"{n} {k}" for k, n in r["requests"].items()))
    lines.append(f"dumps: {r['dumped_samples']} samples of a channel are what was sent; the journal has "
                 f"{r['journal']} updates")
    if r["bursts"]:
        ratio = r["bursts"].pop("ratio")
        lines.append("bursts: " + ", ".join(f"{n} {k}" for k, n in r["bursts"].items()) +
                     (f"; recovered over predicted S/N {ratio:.3f}" if ratio else ""))
    if r["recoveries"]:
        worst, kind = max(r["recoveries"])
        lines.append(f"not ready {len(r['recoveries'])} times; the longest after a fault: {worst:.1f} s "
                     f"({kind})")
    for s in r["slopes"]:
        lines.append(slopes("without a break", s))
    if r["calm"]:
        lines.append(slopes("at the end", r["calm"]))
    lines += ["", *(f"WRONG: {w}" for w in r["wrong"]), "wrong: " + str(len(r["wrong"]))]
    return "\n".join(lines)


def draw(r, path):
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(10, 9), sharex=True, layout="constrained")
    kinds = sorted({f["kind"] for f in r["faults"]})
    for f in r["faults"]:
        top.barh(kinds.index(f["kind"]), max(f["end"] - f["at"], r["seconds"] / 400), left=f["at"],
                 height=0.7, color="tab:red")
    top.set(yticks=range(len(kinds)), yticklabels=kinds, title=f"faults of seed {r['seed']}")
    top.tick_params(axis="y", labelsize=7)
    t = [x["t"] for x in r["rows"]]
    middle.fill_between(t, [0 if x["ready"] else 1 for x in r["rows"]], step="post", color="tab:orange")
    middle.set(ylim=(0, 1), yticks=[], title="not ready")
    held = [x for x in r["rows"] if "rss" in x]
    bottom.plot([x["t"] for x in held], [x["rss"] / 1024 for x in held], label="resident, MiB")
    bottom.plot([x["t"] for x in held], [x["fds"] for x in held], label="descriptors")
    bottom.plot([x["t"] for x in held], [x["threads"] for x in held], label="threads")
    bottom.set(xlabel="seconds", ylim=(0, None))
    bottom.legend(loc="lower right")
    figure.savefig(path, dpi=80)
