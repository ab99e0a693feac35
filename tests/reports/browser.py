"""A headless Chromium, told what to do over WebDriver (https://www.w3.org/TR/webdriver2/): no package needed.

`Browser.start()` skips the test, with a reason, where chromium or its driver is not installed.
"""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window of one browser."""

    def __init__(self, driver: subprocess.Popen, port: int, profile: str, chromium: str) -> None:
        self.driver, self.profile = driver, profile
        self.address = f"http://127.0.0.1:{port}"
        options = {"binary": chromium, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self.session = ""
        self.session = self.ask("POST", "/session", capabilities={"alwaysMatch": wanted})["sessionId"]

    @staticmethod
    def start() -> "Browser":
        chromium = (
            shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
        )
        driver = shutil.which("chromedriver")
        if not chromium or not driver:
            pytest.skip("needs chromium and chromedriver, e.g. `apt-get install chromium chromium-driver`")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([driver, f"--port={port}"], stdout=quiet, stderr=quiet)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        return Browser(process, port, tempfile.mkdtemp(prefix="chromium-"), chromium)

    def close(self) -> None:
        self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        prefix = f"/session/{self.session}" if self.session else ""
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + prefix + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()[:600]) from None

    def open(self, page: Path) -> None:
        """Opens a file and waits until all of it is unpacked."""
        self.ask("POST", "/url", url=page.as_uri())
        self.wait("return document.documentElement.dataset.ready === 'yes'")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("POST", "/execute/sync", script=script, args=list(arguments))

    def wait(self, script: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"waited in vain for: {script}; {self.logged()}"
            time.sleep(0.02)

    def settle(self) -> None:
        """Until what was asked for has been drawn."""
        self.ask(
            "POST",
            "/execute/async",
            script="const next = requestAnimationFrame; next(() => next(() => arguments[0]()))",
            args=[],
        )

    def find(self, selector: str) -> str:
        return self.ask("POST", "/element", using="css selector", value=selector)[ELEMENT]

    def click(self, selector: str) -> None:
        self.ask("POST", f"/element/{self.find(selector)}/click")
        self.settle()

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def keys(self, text: str) -> None:
        """Types into what has the focus."""
        actions = [
            step
            for key in text
            for step in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})
        ]
        self.ask("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])
        self.settle()

    def pointer(self, selector: str, *path: tuple[float, float], kind: str = "mouse") -> None:
        """Presses at the first place of a path, in parts of the element's size, and lets go at the last."""
        box = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]",
            selector,
        )
        places = [(round(box[0] + x * box[2]), round(box[1] + y * box[3])) for x, y in path]
        moves = [{"type": "pointerMove", "duration": 0, "x": x, "y": y} for x, y in places]
        press, release = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
        steps = [moves[0], press, *moves[1:], release]
        parameters = {"pointerType": kind}
        self.ask(
            "POST",
            "/actions",
            actions=[{"type": "pointer", "id": kind, "parameters": parameters, "actions": steps}],
        )
        self.settle()

    def wheel(self, selector: str, notches: int) -> None:
        step = {"type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": 60 * notches, "duration": 0}
        step["origin"] = {ELEMENT: self.find(selector)}
        self.ask("POST", "/actions", actions=[{"type": "wheel", "id": "wheel", "actions": [step]}])
        self.settle()

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.ask("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def screen(
        self, width: int, height: int, *, dark: bool = False, ratio: float = 1, mobile: bool = False
    ) -> None:
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=ratio,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        picture = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(picture))

    def logged(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", type="browser")]

    def requested(self) -> list[str]:
        """Every address that was asked for since last time."""
        entries = [
            json.loads(entry["message"])["message"]
            for entry in self.ask("POST", "/se/log", type="performance")
        ]
        return [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
