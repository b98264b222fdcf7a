//! A real Chromium, driven over the `WebDriver` protocol by `chromedriver`. `SUBLET_CHROMIUM` names the browser where
//! it has not one of the usual names.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser window; it is closed when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    /// Address of the session.
    session: String,
    /// The folder of the browser's profile; removed when this is dropped.
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser. On a machine without one it prints what is missing, and returns none.
    pub(crate) fn start() -> Option<Self> {
        let found =
            |name: &str| env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|p| p.is_file());
        let browser = env::var_os("SUBLET_CHROMIUM")
            .map(PathBuf::from)
            .or_else(|| ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(found));
        let (Some(browser), Some(driver)) = (browser, found("chromedriver")) else {
            eprintln!("skipped: no chromium or no chromedriver, so that nobody has looked at the report");
            return None;
        };
        let mut driver = Command::new(driver)
            .args(["--port=0", "--log-level=WARNING"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver starts");
        // The driver chooses a free port, and prints: "ChromeDriver was started successfully on port 34567."
        let port: u16 = BufReader::new(driver.stdout.take().expect("stdout is piped"))
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok())
            .expect("chromedriver tells its port");
        let agent = ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().new_agent();
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let mut args: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--disable-sync",
            "--disable-component-update",
            "--disable-background-networking",
            "--no-first-run",
            "--force-device-scale-factor=1",
            "--window-size=1400,1000",
        ]
        .map(Into::into)
        .into();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": browser, "args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let url = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { driver, agent, session: url, _profile: profile };
        let session = browser.post("", &wanted);
        let id = session["sessionId"].as_str().expect("a session has an id");
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    pub(crate) fn post(&self, command: &str, body: &Value) -> Value {
        let url = format!("{}{command}", self.session);
        let mut reply = self.agent.post(&url).send_json(body).expect("chromedriver answers");
        let value: Value = reply.body_mut().read_json().expect("chromedriver answers in JSON");
        assert!(reply.status().is_success(), "{command} {body}: {value}");
        value["value"].clone()
    }

    pub(crate) fn open(&self, page: &Path) {
        self.post("/url", &json!({"url": format!("file://{}", page.display())}));
        self.settle();
    }

    /// From now on the window is that of a phone, of 390 times 844 pixels, with fingers in place of a mouse.
    pub(crate) fn phone(&self) {
        let screen = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true});
        for (command, params) in [
            ("Emulation.setDeviceMetricsOverride", screen),
            ("Emulation.setTouchEmulationEnabled", json!({"enabled": true, "maxTouchPoints": 2})),
        ] {
            self.post("/goog/cdp/execute", &json!({"cmd": command, "params": params}));
        }
    }

    /// Fingers that touch the page at these places, move and leave it.
    pub(crate) fn touch(&self, fingers: &[[(i64, i64); 2]]) {
        let at = |which: usize| -> Vec<Value> {
            fingers
                .iter()
                .enumerate()
                .map(|(id, path)| json!({"x": path[which].0, "y": path[which].1, "id": id}))
                .collect()
        };
        for (kind, points) in [("touchStart", at(0)), ("touchMove", at(1)), ("touchEnd", Vec::new())] {
            let params = json!({"type": kind, "touchPoints": points});
            self.post("/goog/cdp/execute", &json!({"cmd": "Input.dispatchTouchEvent", "params": params}));
        }
        self.settle();
    }

    /// What a script in the page returns.
    pub(crate) fn ask(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until what was asked to be drawn is drawn: the page draws before a frame.
    pub(crate) fn settle(&self) {
        let frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(null)))";
        self.post("/execute/async", &json!({"script": frames, "args": []}));
    }

    pub(crate) fn act(&self, kind: &str, actions: &Value) {
        self.post("/actions", &json!({"actions": [{"type": kind, "id": kind, "actions": actions}]}));
        self.settle();
    }

    pub(crate) fn hover(&self, (x, y): (i64, i64)) {
        self.act("pointer", &json!([{"type": "pointerMove", "x": x, "y": y, "duration": 0}]));
    }

    pub(crate) fn drag(&self, (x, y): (i64, i64), (right, down): (i64, i64)) {
        self.act(
            "pointer",
            &json!([
                {"type": "pointerMove", "x": x, "y": y, "duration": 0},
                {"type": "pointerDown", "button": 0},
                {"type": "pointerMove", "x": x + right, "y": y + down, "duration": 50},
                {"type": "pointerUp", "button": 0},
            ]),
        );
    }

    pub(crate) fn wheel(&self, (x, y): (i64, i64), delta: i64) {
        self.act(
            "wheel",
            &json!([{"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "origin": "viewport"}]),
        );
    }

    pub(crate) fn key(&self, key: &str) {
        self.act("key", &json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]));
    }

    /// The text beside the pointer; none while it is hidden.
    pub(crate) fn tip(&self) -> Option<String> {
        let tip = self.ask("const tip = document.getElementById('tip'); return tip.hidden ? null : tip.innerText");
        tip.as_str().map(Into::into)
    }

    /// Which part of the data is in view, as the page tells it.
    pub(crate) fn range(&self) -> String {
        self.ask("return document.getElementById('range').innerText").as_str().expect("a text").into()
    }

    /// How many opaque colours fill more than 1/500 of the map each, and how many of its pixels are transparent, in
    /// thousandths.
    pub(crate) fn colors(&self) -> (u64, u64) {
        let counted = self.ask(
            "const c = document.querySelector('.plot.map canvas');
             const pixels = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
             const seen = new Map();
             for (const p of pixels) seen.set(p, (seen.get(p) ?? 0) + 1);
             const large = [...seen].filter(([p, n]) => p >>> 24 === 255 && n > pixels.length / 500).length;
             return [large, Math.round(1000 * (seen.get(0) ?? 0) / pixels.length)]",
        );
        (counted[0].as_u64().expect("a count"), counted[1].as_u64().expect("a share"))
    }

    /// For each of `blocks` a pixel of the page that lies within it, while the whole map is in view; none for a block
    /// that covers no pixel. The map spans the steps of the plan and, from its lower edge, 1.07 times the peak.
    pub(crate) fn pixels_in(&self, blocks: &[usize]) -> Vec<Option<(i64, i64)>> {
        let box_ = self.ask("const b = document.querySelector('.plot.map canvas').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]");
        let [left, top, width, height] = [0, 1, 2, 3].map(|i| box_[i].as_f64().expect("a number"));
        let plan = self.ask("return JSON.parse(document.getElementById('plan').textContent)");
        let number = |column: &str, i: usize| plan[column][i].as_f64().expect("a number");
        let (first, last) = (number("steps", 0), number("steps", 1));
        let most = plan["peak"].as_f64().expect("a number") * 1.07;
        let x = |step: f64| left + (step - first) / (last - first) * width;
        let y = |address: f64| top + (1.0 - address / most) * height;
        let middle = |from: f64, to: f64| {
            let pixel = f64::midpoint(from, to).floor();
            #[expect(clippy::cast_possible_truncation, reason = "a pixel of a window")]
            (from < pixel + 0.3 && pixel + 0.7 < to).then_some(pixel as i64)
        };
        let pixel = |&i: &usize| {
            let (low, high) = (number("offset", i), number("offset", i) + number("size", i));
            Some((middle(x(number("start", i)), x(number("end", i)))?, middle(y(high), y(low))?))
        };
        blocks.iter().map(pixel).collect()
    }

    /// The runs of a colour along one row of pixels of a view: where each begins and ends. Dots of another colour do
    /// not end a run. `up` is the height of the row above the lower edge, as a part of the view's height.
    pub(crate) fn extents(&self, view: &str, up: f64, color: &str) -> Vec<(i64, i64)> {
        let runs = self.ask(&format!(
            "const c = document.querySelector('.plot.{view} canvas');
             const row = c.getContext('2d').getImageData(0, Math.floor((1 - {up}) * c.height), c.width, 1).data;
             const probe = document.createElement('canvas').getContext('2d');
             probe.fillStyle = '{color}';
             probe.fillRect(0, 0, 1, 1);
             const wanted = probe.getImageData(0, 0, 1, 1).data, runs = [];
             for (let x = 0; x < c.width; x++) {{
               if (!wanted.every((part, k) => row[4 * x + k] === part)) continue;
               if (runs.length && runs.at(-1)[1] >= x - 1) runs.at(-1)[1] = x + 1; else runs.push([x, x + 1]);
             }}
             return runs"
        ));
        let pixel = |v: &Value| v.as_i64().expect("a pixel");
        runs.as_array().expect("a list").iter().map(|run| (pixel(&run[0]), pixel(&run[1]))).collect()
    }

    /// A point of a view, right of its left edge and up from its lower edge, as a pixel of the page.
    pub(crate) fn pixel(&self, view: &str, x: i64, up: f64) -> (i64, i64) {
        let box_ = self.ask(&format!(
            "const b = document.querySelector('.plot.{view} canvas').getBoundingClientRect(); return [b.left, b.top, b.height]"
        ));
        let [left, top, height] = [0, 1, 2].map(|i| box_[i].as_f64().expect("a number"));
        #[expect(clippy::cast_possible_truncation, reason = "a pixel of a window")]
        (left as i64 + x, (top + (1.0 - up) * height) as i64)
    }

    /// How many pixels around a point of the page are drawn in the layer of marks above the map.
    pub(crate) fn marked(&self, (x, y): (i64, i64)) -> u64 {
        self.ask(&format!(
            "const c = document.querySelectorAll('.plot.map canvas')[1], b = c.getBoundingClientRect();
             const around = c.getContext('2d').getImageData({x} - b.left - 4, {y} - b.top - 4, 9, 9).data;
             return around.filter((part, k) => k % 4 === 3 && part > 0).length"
        ))
        .as_u64()
        .expect("a count")
    }

    pub(crate) fn offset(&self, block: usize) -> u64 {
        self.ask(&format!("return JSON.parse(document.getElementById('plan').textContent).offset[{block}]"))
            .as_u64()
            .expect("an offset")
    }

    /// The errors that the page has caused: exceptions, refused content, failed loads.
    pub(crate) fn errors(&self) -> Vec<Value> {
        let Value::Array(log) = self.post("/se/log", &json!({"type": "browser"})) else { panic!("a log is a list") };
        log.into_iter().filter(|entry| entry["level"] == "SEVERE").collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser, too; a driver that is killed leaves it behind.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
