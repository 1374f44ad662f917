"""Debian's Chromium, driven over two pipes (the DevTools protocol): no driver program, no socket, no download."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One headless browser with one page. Everything the page asks of the network and says on its console is kept."""

    def __init__(self, profile: Path, width: int = 1280, height: int = 900, *, phone: bool = False):
        to_child, mine_out = os.pipe()
        mine_in, from_child = os.pipe()
        words = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--lang=en-US",
            f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        shell = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, *words], pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self.out, self.into, self.rest, self.number = mine_out, mine_in, b"", 0
        self.requests: list[str] = []
        self.posted: list[str] = []
        self.complaints: list[str] = []
        self.session = None
        target = next(
            t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )["targetId"]  # fmt: skip
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height, phone=phone)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close", seconds=5)
        except (OSError, TimeoutError):
            pass
        os.close(self.out)
        os.close(self.into)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=phone,
                  deviceScaleFactor=2 if phone else 1)  # fmt: skip
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone, maxTouchPoints=5)

    def call(self, method: str, *, seconds: float = 60, **params):
        """Ask, and wait for the answer; what happens meanwhile is noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            answer = self._next(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self, end: float):
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.into, 1 << 20)
            if not got:
                raise OSError("the browser is gone")
            self.rest += got
        first, _, self.rest = self.rest.partition(b"\0")
        return json.loads(first)

    def _note(self, event) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
            self.posted += [part["bytes"] for part in params["request"].get("postDataEntries", []) if "bytes" in part]
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def run(self, script: str):
        """The value of an expression in the page (promises are waited for)."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description"))
        return found["result"].get("value")

    def open(self, path: Path, fragment: str = "") -> None:
        """A report from a file; ready when its viewer says so."""
        self.run("window.left = true")  # whoever still has it is the page before
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.until("!window.left && document.body && document.body.dataset.ready === 'yes'")
        self.settle()

    def until(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never: {condition}; {self.complaints}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key: str, *, shift: bool = False) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0, **text)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        self.call("Input.dispatchTouchEvent", type=kind,
                  touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])  # fmt: skip

    def choose(self, box: str, value: str) -> None:
        """Pick from a select or write in a box, as a person would."""
        self.run(
            f"(() => {{ const box = document.getElementById({json.dumps(box)}); box.value = {json.dumps(value)};"
            "box.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
        self.settle()

    def spoken(self, selector: str) -> list[str]:
        """The pieces of text that a screen reader is given of an element, in their order."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        found = self.call("Accessibility.queryAXTree", nodeId=node, role="StaticText")["nodes"]
        return [item["name"]["value"] for item in found]

    def picture(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
