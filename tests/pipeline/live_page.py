"""The live page in a browser: it draws the pipeline of the file and shows where it is stuck.

    live_page.py                    all tests
    live_page.py --picture FILE     the picture of docs/live-page.png"""
import json
import sys
import time

import browser
import harness
from control_common import ENDLESS, node

BEAMS = """include: telescopes/pathfinder.yaml
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 597.65625, step: 0.1953125,
  count: 4}}
pipeline:
  - stage: simulate
    duration_s: 100000
    seed: 1
    frame_samples: 4096
    sources: [{x_deg: 0.5, y_deg: -0.6, flux: 0.05}]
    out: field
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [16, 16], spacing_deg: 0.25}}
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: t_sink, name: search, check: false, in: levels, pause_us: ${PAUSE:-0}}
  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [1, 3], spacing_deg: 1.5}, shift: 11}
  - {stage: t_sink, name: pulsar, check: false, in: voltage}
"""
ENV = {"BEAMRING_CONFIG_PATH": harness.CONFIG}
ALL_DRAWN = "document.querySelectorAll('#graph g[data-state=flowing], #graph g[data-state=full]').length"


def opened(page, n, queues):
    page.open(n.url + "/")
    page.wait(f"{ALL_DRAWN} == {queues}")


def test_graph_and_previews():
    with node(BEAMS, "--set", "device=cpu", env=ENV) as n, browser.Browser() as page:
        opened(page, n, 6)
        graph = n.get("/v1/graph").json
        for kind, names in (("stage", [s["name"] for s in graph["stages"]]),
                            ("queue", [q["name"] for q in graph["queues"]])):
            shown = page.run(f"[...document.querySelectorAll('#graph g.{kind}')].map(g => g.dataset.name)")
            assert shown == names, (kind, shown, names)
        assert page.run("document.querySelectorAll('#graph path.wire').length") == 13
        assert page.run("document.querySelectorAll('#stages tr').length") == len(graph["stages"])
        for queue, caption in (("beams", "256 beam"), ("field", "2 pol × 64 dish"), ("grid", "gridp"),
                               ("voltage", "beam")):
            page.run(f"document.querySelector('#graph g.queue[data-name={queue}]')"
                     ".dispatchEvent(new MouseEvent('click'))")
            page.wait(f"document.getElementById('map-text').textContent.includes('{caption}') && "
                      "document.getElementById('look-text').textContent.includes('looking took')")
            colours = page.run("new Set(new Uint32Array(document.getElementById('fall').getContext('2d')"
                               ".getImageData(0, 0, document.getElementById('fall').width, "
                               "document.getElementById('fall').height).data.buffer)).size")
            assert colours > 1, f"{queue}: the waterfall has one colour"
        # That hint is about this test's own reading of canvases.
        said = [line for line in page.console if "willReadFrequently" not in line]
        assert said == [], said
        n.end()


def test_preview_is_what_flows():
    """The brightest beam of a preview is the one at the source; the powers of inputs are the noise's."""
    with node(BEAMS, "--set", "device=cpu", env=ENV) as n:
        n.wait_until(lambda s: s["ready"])

        def preview(query):
            end = time.time() + 30
            while time.time() < end:
                document = n.get("/v1/preview?" + query).json
                if "mean" in document:
                    return document
                time.sleep(0.1)
            raise AssertionError(document)

        beams = preview("queue=beams")
        assert beams["axes"] == [["beam", 256]] and len(beams["positions"]) == 256, beams["axes"]
        east, north = beams["positions"][beams["mean"].index(max(beams["mean"]))]
        # x is along m, which runs to the north; 0.25 degrees between beams.
        degree = 3.14159 / 180
        assert abs(north - 0.5 * degree) < 0.003 and abs(east + 0.6 * degree) < 0.003, (east, north)
        assert len(beams["waterfall"]) == 64 and beams["freq_mhz"] == sorted(beams["freq_mhz"])
        field = preview("queue=field")
        assert field["axes"] == [["pol", 2], ["dish", 64]] and len(field["mean"]) == 128
        mean = sum(field["mean"]) / 128
        # The simulated noise has an rms of 2 levels in each component, and is rounded: 2 x (4 + 1/12).
        assert 6 < mean < 11, mean
        other = preview("queue=field&item=127")
        end = time.time() + 30
        while other["item"] != 127:
            assert time.time() < end
            other = preview("queue=field&item=127")
        for query, code in (("queue=nowhere", 404), ("queue=beams&item=256", 404), ("", 400),
                            ("queue=beams&item=x", 400),
                            ("queue=beams&item=99999999999999999999", 404)):
            answer = n.get("/v1/preview?" + query)
            assert answer.code == code and answer.json["error"], (query, answer.code)
        n.end()


def test_a_stall_is_red():
    with node(ENDLESS, env=ENV) as n, browser.Browser() as page:
        page.open(n.url + "/")
        page.wait("document.querySelector('#graph g.queue[data-name=passed]')?.dataset.state == 'full'")
        frame = "document.querySelector('#graph g[data-name=passed] .box')"
        painted = page.run(f"getComputedStyle({frame}).stroke")
        red = page.run("(() => { const d = document.createElement('i'); d.style.color = 'var(--full)'; "
                       "document.body.append(d); return getComputedStyle(d).color })()")
        assert painted == red, (painted, red)
        assert "slow limits the pipeline" in page.run("document.getElementById('sentence').textContent")
        assert page.run("document.querySelector('#graph g.stage.blamed').dataset.name") == "slow"
        blamed = "document.querySelector('#graph g.stage.blamed')"
        assert "slow" in page.run(f"{blamed}.getAttribute('aria-label')")
        # When the node goes, the page says so.
        n.end()
        page.wait("document.getElementById('sentence').textContent.includes('has not answered')")


def test_keyboard_and_phone():
    with node(ENDLESS, env=ENV) as n, browser.Browser(width=360, height=740, dark=True) as page:
        page.open(n.url + "/")
        page.wait("document.querySelectorAll('#graph g').length == 5")
        assert page.run("document.documentElement.scrollWidth") <= 360
        back = page.run("getComputedStyle(document.body).backgroundColor")
        assert sum(int(c) for c in back[4:-1].split(",")) < 200, back
        reached = []
        for _ in range(14):
            page.press("Tab")
            reached.append(page.run("(e => e.dataset.name || e.id || e.className)(document.activeElement)"))
        want = {"t_source", "bytes", "pass", "passed", "slow", "queue", "item", "log", "restart", "stop",
                "scroll"}
        assert want <= set(reached), (want - set(reached), reached)
        page.run("document.querySelector('#graph g.queue[data-name=passed]').focus()")
        page.press("Enter")
        assert page.run("document.getElementById('queue').value") == "passed"
        page.wait("document.getElementById('look-text').textContent.includes('looking took')")
        page.run("document.querySelector('#graph g.stage[data-name=slow]').focus()")
        page.press(" ", "Space")
        assert page.run("document.activeElement.id") == "row slow"
        assert page.console == [], page.console
        n.end()


def picture(path):
    with node(BEAMS, "--set", "device=cpu", env={**ENV, "PAUSE": "400000"}) as n, \
            browser.Browser(width=1180, height=1330) as page:
        opened(page, n, 6)
        page.run("choose('beams')")
        page.wait("document.getElementById('look-text').textContent.includes('looking took')")
        page.run("(document.getElementById('item').value = 120, lookNow())")
        page.wait("document.getElementById('fall-text').textContent.includes('item 120')")
        page.wait("document.getElementById('sentence').textContent.includes('search limits the pipeline')")
        time.sleep(3)
        page.screenshot(path)
        print(json.dumps(page.console))
        n.end()


if __name__ == "__main__":
    if browser.PROGRAM is None:
        print("no Chromium: the live page is not tested")
        sys.exit(77)
    if sys.argv[1:2] == ["--picture"]:
        picture(sys.argv[2])
    else:
        harness.main([test_graph_and_previews, test_preview_is_what_flows, test_a_stall_is_red,
                      test_keyboard_and_phone])
