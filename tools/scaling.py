#!/usr/bin/env python3
"""How large a job can become: what a frame costs a rank, and what its link carries, by the number of ranks.

    tools/scaling.py [--channels 16384] [--beams 5000] [--step-ms 1] [--steps 32] [--link-gbit 50]
                     [--copy-gb-s 5] [--message-us 20] [--header-us 16] [--ranks 4,16,64,128,256,512,1024]

Costs of a machine are measured there: --copy-gb-s and --message-us follow from two points of
tools/bench/exchange.py (bytes of a frame of a rank and microseconds): --points 2.1e6:324,8.4e6:1200.
--header-us is the last column of tools/bench/exchange.py --headers, on a machine with a processor for each
rank."""
import argparse


def fit(points):
    """Microseconds of a frame = fixed + bytes / rate, through the first and the last point."""
    (b0, t0), (b1, t1) = points[0], points[-1]
    rate = (b1 - b0) / (t1 - t0)
    return t0 - b0 / rate, rate * 1e6 / 1e9


def row(a, n):
    """The work of one rank of n on a frame: [name, share of the frame's time]."""
    frame_s = a.steps * a.step_ms * 1e-3
    mine = a.channels * a.beams * a.steps * 2 / n
    sent = mine * (1 - 1 / n)
    link = sent * 8 / (a.link_gbit * 1e9)
    copies = 2 * mine / (a.copy_gb_s * 1e9)
    messages = 2 * (n - 1) * a.message_us * 1e-6
    headers = (n - 1) * a.header_us * 1e-6
    return frame_s, sent / (n - 1) if n > 1 else 0, {
        "link": link / frame_s, "copies": copies / frame_s, "messages": messages / frame_s,
        "headers": headers / frame_s
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--channels", type=int, default=16384, help="fine channels of the whole band")
    p.add_argument("--beams", type=int, default=5000)
    p.add_argument("--step-ms", type=float, default=1)
    p.add_argument("--steps", type=int, default=32, help="in a frame")
    p.add_argument("--link-gbit", type=float, default=50, help="of a rank")
    p.add_argument("--copy-gb-s", type=float, default=5, help="of packing and placing, a core")
    p.add_argument("--message-us", type=float, default=20)
    p.add_argument("--header-us", type=float, default=16, help="of one to and one from another rank")
    p.add_argument("--points", help="bytes:microseconds of measured frames, at least two")
    p.add_argument("--ranks", default="4,16,64,128,256,512,1024")
    a = p.parse_args()
    if a.points:
        points = [tuple(map(float, x.split(":"))) for x in a.points.split(",")]
        if len(points) < 2 or points[0][0] == points[-1][0]:
            p.error("--points: expected at least two, of different bytes")
        fixed, a.copy_gb_s = fit(points)
        print(f"a frame costs {fixed:.0f} us and 1 us for {a.copy_gb_s * 1e3:.0f} bytes")
    print("  ranks   message kB     link   copies  messages  headers   fullest")
    for n in map(int, a.ranks.split(",")):
        _, message, share = row(a, n)
        fullest = max(share, key=share.get)
        print(f"  {n:5}  {message / 1e3:11.1f}  {share['link']:6.1%}  {share['copies']:6.1%}  "
              f"{share['messages']:8.1%}  {share['headers']:7.1%}   {fullest}"
              f"{' (cannot be)' if share[fullest] > 1 else ''}")


if __name__ == "__main__":
    main()
