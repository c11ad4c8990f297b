"""Drives headless Chromium over the pipe of its debugging protocol: JSON messages, each with a zero byte."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. Everything that the page's console says is kept in .console."""

    def __init__(self, width=1280, height=1500, dark=False):
        self.console, self.loads, self._id, self._bytes = [], 0, 0, b""
        self._profile = tempfile.mkdtemp(prefix="beamring-browser-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def wire():  # the browser reads from 3 and writes to 4; the pipes' own numbers may be those
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        words = [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--disable-extensions",
                 "--disable-background-networking",
                 f"--user-data-dir={self._profile}", f"--window-size={width},{height}",
                 "--remote-debugging-pipe"]
        self.process = subprocess.Popen(words + (["--force-dark-mode"] if dark else []), close_fds=False,
                                        preexec_fn=wire, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)
        self.call("Emulation.setScrollbarsHidden", hidden=True)  # pictures show the whole page
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def _message(self, seconds):
        end = time.time() + seconds
        while b"\0" not in self._bytes:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.time()))
            if not ready:
                return None
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._bytes += part
        message, self._bytes = self._bytes.split(b"\0", 1)
        return json.loads(message)

    def _hear(self, message):
        what, about = message.get("method"), message.get("params", {})
        if what == "Page.loadEventFired":
            self.loads += 1
        elif what == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(a.get("value", a.get("description"))) for a in about["args"]))
        elif what == "Runtime.exceptionThrown":
            self.console.append(json.dumps(about["exceptionDetails"]))
        elif what == "Log.entryAdded":
            self.console.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def call(self, method, seconds=60, **parameters):
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.time() + seconds
        while True:
            answer = self._message(end - time.time())
            assert answer is not None, f"the browser does not answer {method}"
            if answer.get("id") == self._id:
                assert "error" not in answer, answer
                return answer["result"]
            self._hear(answer)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def reload(self):
        """Loads the page anew, and waits for it: scripts would still meet the old one, or none."""
        self.loads = 0
        self.call("Page.reload")
        while self.loads == 0:
            message = self._message(60)
            assert message is not None, "the page does not load"
            self._hear(message)

    def run(self, script):
        """The value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, script, seconds=30):
        """Until the expression is true; returns its value."""
        end = time.time() + seconds
        while True:
            value = self.run(script)
            if value:
                return value
            assert time.time() < end, f"'{script}' did not come true; the page says: " \
                                      f"{self.run('document.body.innerText')[:2000]}"
            time.sleep(0.1)

    def press(self, key, code=None):
        text = {"Enter": "\r", " ": " "}.get(key)
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key,
                      windowsVirtualKeyCode={"Tab": 9, "Enter": 13, " ": 32}.get(key, 0), **more)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
