"""`kasuri start` for the tests: a table as people have them, and the server as a process of its own."""

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from kasuri import examples, meshcode
from kasuri.store import workbook

AGES, SEXES = ("0-14", "15-64", "65+"), ("female", "male")


def excel(path: Path, cells: int = 300, level: str = "1km") -> Path:
    """An Excel table of mesh x sex x age north-west of Tokyo, all of it in the first-order mesh 5439."""
    rng = np.random.default_rng(4)
    per = meshcode.level(level).per_first
    inside = examples.kanto_map()[240:400, 160:320].reshape(per, 160 // per, per, 160 // per).sum((1, 3))
    rows, cols = (own[:cells] for own in np.nonzero(inside > 500))
    codes = meshcode.encode(rows + 54 * per, cols + 39 * per, level)
    parts = rng.multinomial(inside[rows, cols], np.full(6, 1 / 6)).reshape(-1)
    names = [(sex, age) for sex in SEXES for age in AGES]
    table = pa.table({
        "mesh_code": pa.array(np.repeat(np.asarray(codes), 6).astype(str)),
        "sex": [names[i % 6][0] for i in range(parts.size)],
        "age": [names[i % 6][1] for i in range(parts.size)],
        "population": parts,
    })  # fmt: skip
    workbook.write({"census": table.filter(pa.compute.greater(table["population"], 0))}, path)
    return path


class Server:
    """The process, and the address that it printed."""

    def __init__(self, folder: Path, *words: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kasuri", "start", *words, "--no-open", "--json"], cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("}"):
                break
        assert lines, self.process.stderr.read()
        self.address = json.loads("".join(lines))["address"]

    def stop(self, how=signal.SIGINT):
        self.process.send_signal(how)
        _, said = self.process.communicate(timeout=180)  # what it was planning ends first
        return said


class Caller:
    """What the page sends, without a browser."""

    def __init__(self, server: Server):
        self.origin, _, token = server.address.partition("/#")
        self.session = ""
        self.session = self.ask("/session", token=token)[1]["session"]

    def send(self, path: str, body: bytes, **more: str) -> http.client.HTTPConnection:
        """A request whose answer nobody has read yet."""
        line = http.client.HTTPConnection(self.origin.removeprefix("http://"), timeout=120)
        line.request("POST", path, body, {"origin": self.origin, "content-type": "application/json",
                                          "kasuri-session": self.session} | more)  # fmt: skip
        return line

    def ask(self, path: str, **told: object) -> tuple[int, dict]:
        line = self.send(path, json.dumps(told).encode())
        answer = line.getresponse()
        found = answer.status, json.loads(answer.read())
        line.close()
        return found


@contextmanager
def served(folder: Path, *words: str):
    server = Server(folder, *words)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def visit(browser, server) -> None:
    browser.run("window.left = true")
    browser.call("Page.navigate", url=server.address)
    browser.until("!window.left && document.body && document.body.dataset.ready")
    browser.settle()


def click(browser, selector: str) -> None:
    """One press of the mouse in the middle of an element, scrolled into view as a person would."""
    browser.until(f"!!document.querySelector({json.dumps(selector)})")
    x, y = browser.run(
        f"(() => {{ const own = document.querySelector({json.dumps(selector)});"
        "own.scrollIntoView({ block: 'center', behavior: 'instant' });"
        "const r = own.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, x, y, button="left", clickCount=1)
    saved(browser)


def saved(browser) -> None:
    """Until what was chosen is in the job file."""
    browser.run("(async () => { let now; do { now = queue; await now; } while (now !== queue); return 1; })()")
    browser.settle()


def type_in(browser, text: str) -> None:
    for letter in text:
        browser.key(letter)
