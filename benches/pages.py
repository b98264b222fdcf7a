#!/usr/bin/env python3
"""How fast the pages of `--report` are at 90,000 rows, in Chromium: first paint, drawn, and what the dearest frames take.

    pages.py SUBLET FOLDER

Makes the pages of plan, fit, sweep and doctor in FOLDER with the program SUBLET, opens each 1400 and 390 pixels wide, turns the
wheel, drags, points, scrolls the table, searches and sorts by real input, and prints milliseconds: the first paint and the
complete page since it was asked for, and of each action the processor's time that its dearest step takes in the page's thread,
with all that is drawn after it: scripts, layout and paint. Screenshots stay in FOLDER. Wants chromium and chromedriver in PATH.
"""

import base64
import json
import pathlib
import pickle
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

ROWS = 90_000
WIDTHS = {"desk": (1400, 1000), "phone": (390, 844)}


def instance() -> str:
    rows = (f"layer{i}.weight,{i // 20 * 10 + i % 7},{i // 20 * 10 + i % 7 + 6 + i * i % 90},{4096 << i % 5}" for i in range(ROWS))
    return "id,lower,upper,size\n" + "\n".join(rows) + "\n"


def trace(wanted: int) -> str:
    """As many operators back as forth; each backward one reads what its forward one wrote."""
    layers, rows, now = wanted // 7, ["time_ns,event,block,bytes,op"], 0
    for op in range(layers):
        rows.append(f"{now},malloc,{op},{2 << 20},{op}")
        if op:
            rows.append(f"{now},read,{op - 1},,{op}")
        now += 200_000
        rows.append(f"{now},write,{op},,{op}")
    for op, block in enumerate(reversed(range(layers)), layers):
        rows.append(f"{now},read,{block},,{op}")
        now += 200_000
        rows += [f"{now},write,{block},,{op}", f"{now},free,{block},,"]
    return "\n".join(rows) + "\n"


def snapshot() -> bytes:
    """A pool of 64 MiB segments, 90,000 events by 300 lines of a program."""
    dice, held, events, free = random.Random(1), [], [], []
    for event in range(ROWS):
        if held and dice.random() < 0.45:
            address, size = held.pop(dice.randrange(len(held)))
            free.append(address)
            events.append({"action": "free_completed", "addr": address, "size": size, "frames": []})
            continue
        address = free.pop() if free else (event + 1) << 21
        size, line = dice.randrange(1, 1 << 11) * 512, dice.randrange(300)
        frames = [{"filename": "model.py", "line": line, "name": f"block{line % 30}"}, {"filename": "train.py", "line": 7, "name": "step"}]
        held.append((address, size))
        events.append({"action": "alloc", "addr": address, "size": size, "frames": frames})
    return pickle.dumps({"device_traces": [events], "segments": []}, protocol=2)


def make(sublet: str, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    # The page of a sweep has as many rows as there are limits and means, however long the trace is.
    inputs = {
        "plan.csv": instance().encode(),
        "fit.csv": trace(ROWS).encode(),
        "sweep.csv": trace(2000).encode(),
        "doctor.pickle": snapshot(),
    }
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
    calls = {
        "plan": ["plan", "plan.csv", "--solver", "best-fit"],
        "fit": ["fit", "fit.csv", "--limit", "70%", "--using", "swap"],
        "sweep": ["sweep", "sweep.csv", "--points", "60"],
        "doctor": ["doctor", "doctor.pickle"],
    }
    for page, call in calls.items():
        begin = time.monotonic()
        subprocess.run([sublet, *call, "--report", f"{page}.html"], cwd=folder, check=True, capture_output=True)
        size = (folder / f"{page}.html").stat().st_size
        print(f"{page}: made in {time.monotonic() - begin:.0f} s, {size / 1e6:.1f} MB", file=sys.stderr)
    return {page: folder / f"{page}.html" for page in calls}


class Browser:
    def __init__(self, width: int, height: int, phone: bool) -> None:
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        line = next(line for line in self.driver.stdout if "successfully on port" in line)
        self.url = f"http://127.0.0.1:{re.findall('[0-9]+', line)[-1]}/session"
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": args}}
        self.url += "/" + self.post("", {"capabilities": {"alwaysMatch": options}})["sessionId"]
        screen = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.tell("Performance.enable", timeDomain="threadTicks")
        self.tell("Emulation.setDeviceMetricsOverride", **screen)
        self.tell("Emulation.setTouchEmulationEnabled", enabled=phone, maxTouchPoints=2)

    def post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as reply:
            return json.load(reply)["value"]

    def tell(self, command: str, **params: object) -> dict:
        return self.post("/goog/cdp/execute", {"cmd": command, "params": params})

    def ask(self, script: str) -> object:
        return self.post("/execute/sync", {"script": script, "args": []})

    def settle(self) -> float:
        script = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())))"
        return self.post("/execute/async", {"script": script, "args": []})

    def spent(self) -> float:
        """The processor's time of the page's thread so far, in ms."""
        metrics = self.tell("Performance.getMetrics")["metrics"]
        return 1000 * next(m["value"] for m in metrics if m["name"] == "TaskDuration")

    def close(self) -> None:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(self.url, method="DELETE"))
        self.driver.terminate()
        self.driver.wait()


def actions(browser: Browser, page: str, phone: bool) -> dict[str, list[Callable[[], object]]]:
    """What a reader does, by name, step by step."""
    place = {"plan": ".plot.map", "fit": ".plot.map", "sweep": "#curve", "doctor": "#held"}[page]
    x, y, w = browser.ask(
        f"const e = document.querySelector('{place}'); e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2, b.width]"
    )

    def mouse(kind: str, at: float, **more: object) -> Callable[[], object]:
        return lambda: browser.tell("Input.dispatchMouseEvent", type=kind, x=at, y=y, **more)

    def touch(kind: str, *fingers: float) -> Callable[[], object]:
        points = [{"x": at, "y": y, "id": k} for k, at in enumerate(fingers)]
        return lambda: browser.tell("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def ask(script: str) -> Callable[[], object]:
        return lambda: browser.ask(script)

    search = "const s = document.getElementById('search'); s.value = '{}'; s.dispatchEvent(new Event('input'))"
    sort = "[...document.querySelectorAll('#alive th button')].find(b => b.innerText === '{}').click()"
    scroll = "document.querySelector('#alive .scroll').scrollTop = {}"
    held = {"button": "left", "clickCount": 1}
    point = [mouse("mouseMoved", x - w / 3 + k * w / 12) for k in range(8)]
    tap = [touch(kind, *at) for k in range(4) for kind, at in (("touchStart", [x - w / 3 + k * w / 6]), ("touchEnd", []))]
    if page in ("sweep", "doctor"):
        return {"tap": tap} if phone else {"point": point}
    desk = {
        "point": point,
        "wheel": [mouse("mouseWheel", x, deltaX=0, deltaY=delta) for delta in 6 * [-120] + 6 * [120]],
        "drag": [
            mouse("mousePressed", x, **held),
            *(mouse("mouseMoved", x - 12 * k, button="left", buttons=1) for k in range(8)),
            mouse("mouseReleased", x - 96, **held),
        ],
    }
    pinch = [touch("touchMove", x - 20 - 12 * k, x + 20 + 12 * k) for k in range(8)]
    hand = {"tap": tap, "pinch": [touch("touchStart", x - 20, x + 20), *pinch, touch("touchEnd")]} if phone else desk
    return {
        **hand,
        "search": [ask(search.format(text)) for text in ("l", "la", "lay", "1", "12")],
        "sort": [ask(sort.format(heading)) for heading in ("bytes", "from step", "block")],
        "scroll": [ask(scroll.format(900 * k)) for k in range(8)],
    }


def measure(pages: dict[str, pathlib.Path], folder: pathlib.Path) -> None:
    for page, file in pages.items():
        for name, (width, height) in WIDTHS.items():
            browser = Browser(width, height, name == "phone")
            browser.post("/url", {"url": f"file://{file.resolve()}"})
            browser.settle()
            paint = browser.ask("return performance.getEntriesByName('first-contentful-paint')[0].startTime")
            drawn = browser.ask("return performance.getEntriesByType('navigation')[0].loadEventEnd")
            shot = browser.post("/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": True}})
            (folder / f"{page}.{name}.png").write_bytes(base64.b64decode(shot["data"]))
            aside = browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            dearest = []
            for action, steps in actions(browser, page, name == "phone").items():
                taken = []
                for step in steps:
                    before = browser.spent()
                    step()
                    browser.settle()
                    taken.append(browser.spent() - before)
                dearest.append(f"{action} {max(taken):.0f}")
            print(f"{page:7} {width:5}: paint {paint:.0f}, complete {drawn:.0f}, sticks out {aside}; {', '.join(dearest)}", flush=True)
            browser.close()


if __name__ == "__main__":
    program, where = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    measure(make(program, where), where)
