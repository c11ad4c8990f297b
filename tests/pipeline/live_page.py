"""The live page in a browser: it draws the pipeline of the file, shows where it is stuck and what flows.

    live_page.py              all tests; pictures go to the directory $BEAMRING_PICTURES, where it is given
    live_page.py --pictures   the same, but waterfalls are waited for: docs/live-page.png is burst.png of
                              these, docs/live-page-phone.png is dead_board.png

Look at all pictures when the page changes."""
import json
import os
import socket
import sys
import time

from PIL import Image

import browser
import harness
from capture_common import free_port
from control_common import ENDLESS, node
from planted import FEngine

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
# Sixteen dishes, and six bursts, which cross the band in 0.2 s.
BURSTS = """telescope:
  name: small
  grid: {m: 4, n: 4}
  spacing_m: {m: 8.5, n: 6.3}
  dishes: [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [2, 0], [2, 1], [2, 2], [2, 3],
    [3, 0], [3, 1], [3, 2], [3, 3]]
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 400, step: 0.1953125, count: 16}}
pipeline:
  - stage: simulate
    duration_s: 100000
    frame_samples: 4096
    bursts: [BURSTS]
    out: field
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [4, 4], spacing_deg: 1}}
  - {stage: t_sink, name: search, check: false, in: beams, pause_us: ${PAUSE}}
""".replace("BURSTS", ", ".join(f"{{x_deg: 0.5, y_deg: -0.5, dm: 500, arrival_s: {0.5 + i}, "
                                "width_s: 0.02, flux: 0.3}" for i in range(6)))
DUMP = BURSTS[:BURSTS.index("    bursts:")] + """    out: field
  - {stage: dump, in: {from: field, history: {seconds: 0.5}}, directory: out}
"""
ORDERS = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_update, name: one, in: bytes, out: more}
  - {stage: t_sink, name: slow, pause_us: 10000, in: more}
"""
ENV = {"BEAMRING_CONFIG_PATH": harness.CONFIG}
PATIENT = sys.argv[1:2] == ["--pictures"]
ALL_DRAWN = "document.querySelectorAll('#graph g[data-state=flowing], #graph g[data-state=full]').length"


SHOWN = "document.getElementById('look-text').textContent.includes('adding a frame')"


def opened(page, n, queues):
    page.open(n.url + "/")
    page.wait(f"{ALL_DRAWN} == {queues}")


def keep(page, name, seconds=0):
    """A picture of the page for people; of a waterfall of so many seconds, where pictures are asked for."""
    if PATIENT and seconds:
        page.wait(f"columns.length && shown.now_ms - columns[0].at > {1000 * seconds}", seconds=60)
    if "BEAMRING_PICTURES" in os.environ:
        os.makedirs(os.environ["BEAMRING_PICTURES"], exist_ok=True)
        path = os.path.join(os.environ["BEAMRING_PICTURES"], name + ".png")
        page.screenshot(path)
        Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def text_of(page, element):
    return page.run(f"document.getElementById('{element}').textContent")


def test_graph_and_previews():
    with node(BEAMS, "--set", "device=cpu", env=ENV) as n, browser.Browser(width=1180, height=1330) as page:
        opened(page, n, 6)
        graph = n.get("/v1/graph").json
        for kind, names in (("stage", [s["name"] for s in graph["stages"]]),
                            ("queue", [q["name"] for q in graph["queues"]])):
            shown = page.run(f"[...document.querySelectorAll('#graph g.{kind}')].map(g => g.dataset.name)")
            assert shown == names, (kind, shown, names)
        assert page.run("document.querySelectorAll('#graph path.wire').length") == 13
        assert page.run("document.querySelectorAll('#stages tr').length") == len(graph["stages"])
        # It opens on the beams before they are quantized, with the sky's axes.
        page.wait("shown && shown.queue == 'beams' && columns.length > 3")
        assert page.run("location.hash") == "#queue=beams&item=0"
        assert page.run("panelsOf(shown).x") == "degrees east"
        # A click chooses, and the value is said.
        page.run("(r => document.getElementById('map').dispatchEvent(new MouseEvent('click', {clientX: "
                 "r.left + places[100][0], clientY: r.top + places[100][1]})))"
                 "(document.getElementById('map').getBoundingClientRect())")
        page.wait("shown && shown.item == 100 && columns.length > 3")
        assert text_of(page, "under").startswith("beam 100, "), text_of(page, "under")
        for text in ("map-text", "fall-text"):
            assert "beyond its ends" in text_of(page, text), text_of(page, text)
        keep(page, "desktop", 15)
        for queue, caption in (("field", "2 pol × 64 dish"), ("grid", "gridp"), ("voltage", "beam")):
            page.run(f"document.querySelector('#graph g.queue[data-name={queue}]')"
                     ".dispatchEvent(new MouseEvent('click'))")
            page.wait(f"shown && shown.queue == '{queue}' && columns.length > 1")
            assert caption in text_of(page, "map-text"), text_of(page, "map-text")
            colours = page.run("new Set(new Uint32Array(document.getElementById('fall').getContext('2d')"
                               ".getImageData(0, 0, document.getElementById('fall').width, "
                               "document.getElementById('fall').height).data.buffer)).size")
            assert colours > 20, f"{queue}: the waterfall has few colours"
        # The choice is in the address, and the page shows it again.
        page.run("choose('field')")
        page.run("(document.getElementById('item').value = 70, lookNow())")
        assert page.run("location.hash") == "#queue=field&item=70"
        page.open(n.url + "/#queue=field&item=70")
        page.reload()
        page.wait("typeof shown != 'undefined' && shown && shown.item == 70 && shown.queue == 'field'")
        page.wait("document.getElementById('under').textContent.startsWith('pol 1, dish 6, ')")
        heads = page.run("[...document.getElementById('stages').parentNode.tHead.rows[0].cells]"
                         ".filter(c => c.offsetParent).map(c => c.textContent)")
        assert "GPU" not in heads and "busy" in heads and "now" in heads, heads
        assert "sample" in text_of(page, "facts") and "UTC" in text_of(page, "facts"), text_of(page, "facts")
        # That hint is about this test's own reading of canvases.
        said = [line for line in page.console if "willReadFrequently" not in line]
        assert said == [], said
        n.end()


def test_preview_is_what_flows():
    """The brightest beam of a preview is the one at the source; the powers of inputs are the noise's."""
    with node(BEAMS, "--set", "device=cpu", env=ENV) as n:
        n.wait_until(lambda s: s["ready"])

        def preview(query, cells=1):
            end = time.time() + 60
            while time.time() < end:
                document = n.get("/v1/preview?" + query).json
                if "mean" in document and document["cells"] >= cells:
                    return document
                time.sleep(0.1)
            raise AssertionError(document)

        beams = preview("queue=beams")
        assert beams["axes"] == [["beam", 256]] and len(beams["positions"]) == 256, beams["axes"]
        east, north = beams["positions"][beams["mean"].index(max(beams["mean"]))]
        # x is along m, which runs to the north; 0.25 degrees between beams.
        assert beams["unit"] == "deg" and abs(north - 0.5) < 0.17 and abs(east + 0.6) < 0.17, (east, north)
        fall = beams["waterfall"]
        assert fall["power"] and all(len(row) == 64 for row in fall["power"]), fall
        assert len(fall["at_ms"]) == len(fall["sample"]) == len(fall["power"])
        assert fall["sample"] == sorted(fall["sample"]) and fall["at_ms"] == sorted(fall["at_ms"])
        assert beams["freq_mhz"] == sorted(beams["freq_mhz"])
        later = preview(f"queue=beams&since={fall['next']}")["waterfall"]
        assert all(sample > fall["sample"][-1] for sample in later["sample"]), (fall, later)
        # True means: the noise has an rms of 2 levels in each component and is rounded, 2 x (4 + 1/12), and
        # the source adds 5 %; 10000 samples scatter by 1 %, and a dish that is 10 % weaker would be seen. A
        # slow machine shows fewer.
        field = preview("queue=field", cells=3000)
        scatter = field["cells"]**-0.5
        assert field["axes"] == [["pol", 2], ["dish", 64]] and len(field["mean"]) == 128
        assert all(abs(mean / 8.57 - 1) < 6 * scatter for mean in field["mean"]), sorted(field["mean"])
        assert preview("queue=field&item=127")["item"] == 127
        for query, code in (("queue=nowhere", 404), ("queue=beams&item=256", 404), ("", 400),
                            ("queue=beams&item=x", 400),
                            ("queue=beams&item=99999999999999999999", 404),
                            ("queue=beams&since=-1", 400)):
            answer = n.get("/v1/preview?" + query)
            assert answer.code == code and answer.json["error"], (query, answer.code)
        n.end()


def test_a_stall_is_red():
    with node(ENDLESS, env=ENV) as n, browser.Browser(dark=True) as page:
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
        page.wait(SHOWN)
        keep(page, "full_queue")
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
        # The first screen says state, place and cause; a table that is wider than the screen says so.
        page.wait("document.getElementById('words').textContent.includes('slow limits the pipeline: it takes"
                  "')")
        assert text_of(page, "state") == "running, limited"
        assert page.run("document.getElementById('sentence').getBoundingClientRect().bottom") < 740
        page.wait("document.getElementById('stages').closest('.scroll').className.includes('more')")
        page.wait(SHOWN)
        keep(page, "phone_dark")
        reached = []
        for _ in range(15):
            page.press("Tab")
            reached.append(page.run("(e => e.dataset.name || e.id || e.className.split(' ')[0])"
                                    "(document.activeElement)"))
        want = {"t_source", "bytes", "pass", "passed", "slow", "queue", "item", "flat", "log", "restart",
                "stop", "scroll"}
        assert want <= set(reached), (want - set(reached), reached)
        page.run("document.querySelector('#graph g.queue[data-name=passed]').focus()")
        page.press("Enter")
        assert page.run("document.getElementById('queue').value") == "passed"
        page.wait(SHOWN)
        page.run("document.querySelector('#graph g.stage[data-name=slow]').focus()")
        page.press(" ", "Space")
        assert page.run("document.activeElement.id") == "row slow"
        assert page.console == [], page.console
        n.end()


def test_a_board_goes():
    """The table of boards, the message, and no question about a queue that has no picture."""
    engine = FEngine(free_port(socket.SOCK_DGRAM))
    gone = engine.boards.sources[1]
    row = f"[...document.querySelectorAll('#boards tr')].find(r => r.cells[0].textContent == 'source {gone}')"
    with node(engine.text, env=ENV) as n, browser.Browser(width=390, height=844) as page:
        page.open(n.url + "/")
        page.wait(f"{row}?.cells[1].textContent == 'sends'")
        # Its thread waits for packets nearly all the time: that is not work.
        waits = lambda c: c["busy"] < 0.6 and c["wait_else"] + c["busy"] > 0.8
        n.wait_until(lambda s: s["ready"] and s["uptime_s"] > 2 and waits(n.stage("capture", s)))
        engine.silent.add(gone)
        page.wait(f"{row}.cells[1].textContent == 'silent'")
        assert page.run(f"{row}.cells[2].textContent").endswith(" ago"), page.run(f"{row}.textContent")
        page.wait("document.getElementById('last').textContent"
                  f".includes('source {gone}: no packets for 1 s')")
        page.wait(f"document.getElementById('words').textContent.includes('source {gone} for')")
        assert text_of(page, "state") == "running, in trouble"
        assert "There is no picture of 'packets'" in text_of(page, "look-text") or \
            text_of(page, "look-text").startswith("Choose"), text_of(page, "look-text")
        page.run("choose('packets')")
        page.wait("document.getElementById('look-text').textContent.includes(\"no picture of 'packets'\")")
        keep(page, "dead_board")
        engine.silent.clear()
        page.wait(f"{row}.cells[1].textContent == 'sends'")
        page.wait("document.getElementById('log').textContent.includes('packets arrive again')")
        assert page.console == [], page.console
        n.end()


def test_a_burst():
    """A dispersed burst is seen to cross the waterfall of its beam, late at low frequencies."""
    pause = {"PAUSE": "0" if PATIENT else "100000"}  # a fast machine must not be through before anybody looks
    with node(BURSTS, "--set", "device=cpu", env={**ENV, **pause}) as n, \
            browser.Browser(width=1180, height=1400) as page:
        n.wait_until(lambda s: s["ready"])
        page.open(n.url + "/")
        page.wait("typeof shown != 'undefined' && shown && shown.queue == 'beams'")
        place = page.run("shown.positions.findIndex(p => Math.hypot(p[0] + 0.5, p[1] - 0.5) < 0.1)")
        page.run(f"(document.getElementById('item').value = {place}, lookNow())")
        page.wait("shown && shown.item == " + str(place))
        bright = "Math.max(...columns.flatMap(c => c.power)) / middle(columns.flatMap(c => c.power))"
        page.wait(f"columns.length > 20 && {bright} > 2", seconds=60)
        keep(page, "burst", 19)
        assert page.console == [], page.console
        n.end()


def test_updates_and_dumps():
    with browser.Browser() as page:
        with node(ORDERS, env=ENV) as n:
            n.wait_until(lambda s: s["ready"])
            page.open(n.url + "/")
            page.wait("document.querySelectorAll('#graph g').length == 5")
            assert page.run("document.getElementById('orders-section').offsetParent") is None
            answer = n.post("/v1/update",
                            json.dumps({"id": "louder", "at": "now", "stages": {"one": {"add": 4}}}))
            assert answer.code == 202, answer.text
            page.wait("document.getElementById('orders').textContent.includes('update louder')")
            page.wait("document.querySelector('#orders td:nth-child(2)').textContent == 'applied'")
            assert page.console == [], page.console
            n.end()
        page.open("about:blank")
        with node(DUMP, env=ENV) as n:
            n.wait_until(lambda s: s["ready"])
            page.open(n.url + "/")
            answer = n.post("/v1/dump", json.dumps({"id": 7, "start": "earliest", "samples": 2048}))
            assert answer.code == 202, answer.text
            page.wait("document.querySelector('#orders td')?.textContent == 'dump 7'")
            page.wait("document.querySelector('#orders td:nth-child(2)').textContent == 'done'")
            assert "B in out" in text_of(page, "orders"), text_of(page, "orders")
            n.end()


if __name__ == "__main__":
    if browser.PROGRAM is None:
        print("no Chromium: the live page is not tested")
        sys.exit(77)
    if PATIENT:
        sys.argv.pop(1)
    harness.main([test_graph_and_previews, test_preview_is_what_flows, test_a_stall_is_red,
                  test_keyboard_and_phone, test_a_board_goes, test_a_burst, test_updates_and_dumps])
