//! The report as a person meets it: opened in a real Chromium, pointed at, zoomed and dragged with real mouse events.
//!
//! The browser is driven over the `WebDriver` protocol by `chromedriver`. `SUBLET_CHROMIUM` names the browser where it is
//! not called as usual.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser window; it is closed when this is dropped.
struct Browser {
    driver: Child,
    agent: ureq::Agent,
    /// Address of the session.
    session: String,
    /// What the browser keeps; removed with it.
    _profile: TempDir,
}

impl Browser {
    /// None, with a word on what is missing, on a machine without browser.
    fn start() -> Option<Self> {
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
        // It chooses a free port and says so: "ChromeDriver was started successfully on port 34567."
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

    fn post(&self, command: &str, body: &Value) -> Value {
        let url = format!("{}{command}", self.session);
        let mut reply = self.agent.post(&url).send_json(body).expect("chromedriver answers");
        let value: Value = reply.body_mut().read_json().expect("chromedriver answers in JSON");
        assert!(reply.status().is_success(), "{command} {body}: {value}");
        value["value"].clone()
    }

    fn open(&self, page: &Path) {
        self.post("/url", &json!({"url": format!("file://{}", page.display())}));
        self.settle();
    }

    /// What a script in the page returns.
    fn ask(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until what was asked to be drawn is drawn: the page draws before a frame.
    fn settle(&self) {
        let frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(null)))";
        self.post("/execute/async", &json!({"script": frames, "args": []}));
    }

    fn act(&self, kind: &str, actions: &Value) {
        self.post("/actions", &json!({"actions": [{"type": kind, "id": kind, "actions": actions}]}));
        self.settle();
    }

    fn hover(&self, (x, y): (i64, i64)) {
        self.act("pointer", &json!([{"type": "pointerMove", "x": x, "y": y, "duration": 0}]));
    }

    fn drag(&self, (x, y): (i64, i64), (right, down): (i64, i64)) {
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

    fn wheel(&self, (x, y): (i64, i64), delta: i64) {
        self.act(
            "wheel",
            &json!([{"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "origin": "viewport"}]),
        );
    }

    fn key(&self, key: &str) {
        self.act("key", &json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]));
    }

    /// The text beside the pointer; none while it is hidden.
    fn tip(&self) -> Option<String> {
        let tip = self.ask("const tip = document.getElementById('tip'); return tip.hidden ? null : tip.innerText");
        tip.as_str().map(Into::into)
    }

    /// Which part of the data is in view, as the page tells it.
    fn range(&self) -> String {
        self.ask("return document.getElementById('range').innerText").as_str().expect("a text").into()
    }

    /// How many different opaque colours the map has, and how many of its pixels are transparent, as parts of a thousand.
    fn colors(&self) -> (u64, u64) {
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

    /// A pixel of the page that lies within each of `blocks`, where everything is in view; none for a block that covers no pixel.
    /// The map spans the steps of the plan and, from its lower edge, 1.07 times the peak.
    fn pixels_in(&self, blocks: &[usize]) -> Vec<Option<(i64, i64)>> {
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

    fn offset(&self, block: usize) -> u64 {
        self.ask(&format!("return JSON.parse(document.getElementById('plan').textContent).offset[{block}]"))
            .as_u64()
            .expect("an offset")
    }

    /// The errors that the page has caused: exceptions, refused content, failed loads.
    fn errors(&self) -> Vec<Value> {
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

/// An instance, planned and reported; the folder that holds the report, and the report.
fn report(instance: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, page) = (folder.path().join("instance.csv"), folder.path().join("plan.html"));
    fs::write(&input, instance).expect("the instance is written");
    let run = Command::new(env!("CARGO_BIN_EXE_sublet")).arg("plan").arg(&input).arg("--report").arg(&page).output();
    let run = run.expect("sublet runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    (folder, page)
}

/// `1234567` as `1,234,567`.
fn whole(n: u64) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", whole(n / 1000), n % 1000) }
}

/// Id, first step, step after the last, size. No two sizes are in one class, so that there are four colours.
const FOUR: [(&str, u64, u64, u64); 4] = [
    ("low", 0, 60, 40_000),
    ("</script><script>document.title='broken'</script>", 0, 30, 10_000),
    ("late", 60, 100, 70_000),
    ("late & small", 70, 100, 5_000),
];

#[test]
fn four_blocks_are_drawn_told_and_zoomed() {
    let Some(browser) = Browser::start() else { return };
    let mut instance = String::from("id,lower,upper,size\n");
    for (id, lower, upper, size) in FOUR {
        writeln!(instance, "{id},{lower},{upper},{size}").expect("a string takes it");
    }
    let (_folder, page) = report(&instance);
    browser.open(&page);

    let (colors, background) = browser.colors();
    assert!(colors >= 4, "{colors} colours");
    assert!((200..800).contains(&background), "{background} of 1000 pixels are background");
    assert_eq!(browser.ask("return document.title"), "instance.csv – memory map");

    let pixels = browser.pixels_in(&[0, 1, 2, 3]);
    for (block, (id, lower, upper, size)) in FOUR.into_iter().enumerate() {
        browser.hover(pixels[block].expect("these blocks are large"));
        let tip = browser.tip().expect("a block is told");
        let offset = whole(browser.offset(block));
        assert!(tip.starts_with(&format!("block {id}\n")), "{tip}");
        for part in [format!("({} B)", whole(size)), format!("[{lower}, {upper})"), offset] {
            assert!(tip.contains(&part), "{part:?} is not in {tip:?}");
        }
    }
    // Between the end of the second block and the start of the third, nothing is above the first.
    let (x, y) = pixels[0].expect("it is large");
    let gap = (x + 200, y - 250);
    browser.hover(gap);
    assert_eq!(browser.tip(), None, "nothing lies at {gap:?}");

    // What is under the pointer stays there, larger.
    let late = pixels[2].expect("it is large");
    let everything = browser.range();
    browser.wheel(late, -400);
    let zoomed = browser.range();
    assert_ne!(zoomed, everything);
    assert!(browser.colors().1 != background, "the map is drawn anew");
    browser.hover(late);
    assert!(browser.tip().is_some_and(|tip| tip.starts_with("block late\n")));

    browser.drag(late, (150, 0));
    let dragged = browser.range();
    assert_ne!(dragged, zoomed);

    browser.ask("document.getElementById('chart').focus()");
    browser.key("0");
    assert_eq!(browser.range(), everything);
    browser.key("+");
    assert_ne!(browser.range(), everything);
    browser.key("0");

    // At the max load the last two are alive, the larger one first; to pick a block shows it.
    let alive = "return [...document.querySelectorAll('#alive tr.block')].map(row => row.cells[0].innerText)";
    assert_eq!(browser.ask(alive), json!(["late", "late & small"]));
    browser.ask("document.querySelector('#alive tr.block').click()");
    browser.settle();
    assert_ne!(browser.range(), everything);
    // To point at a colour of the legend fades the others.
    let faded = browser.colors().0;
    browser.ask("document.querySelector('#legend button').focus()");
    browser.settle();
    assert!(browser.colors().0 < faded, "no colour fades");
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

#[test]
fn twenty_thousand_blocks_are_drawn_and_told() {
    let Some(browser) = Browser::start() else { return };
    let mut instance = String::from("id,lower,upper,size\n");
    for i in 0..20_000u64 {
        let start = i / 20 * 10 + i % 7;
        let size = 4096 << (i % 5);
        writeln!(instance, "B{i},{start},{},{size}", start + 6 + i * i % 90).expect("a string takes it");
    }
    let (_folder, page) = report(&instance);
    browser.open(&page);
    assert!(browser.colors().0 >= 5);

    let blocks: Vec<usize> = (0..20_000).collect();
    let known: Vec<_> =
        browser.pixels_in(&blocks).into_iter().enumerate().filter_map(|(i, pixel)| Some((i, pixel?))).collect();
    assert!(known.len() > 1000, "only {} blocks cover a pixel", known.len());
    for &(i, pixel) in known.iter().step_by(known.len() / 8) {
        browser.hover(pixel);
        let tip = browser.tip().unwrap_or_default();
        assert!(tip.starts_with(&format!("block B{i}\n")), "block B{i}, but the page tells {tip:?}");
        assert!(tip.contains(&whole(browser.offset(i))), "{tip:?}");
    }
    let (i, pixel) = known[known.len() / 2];
    for _ in 0..6 {
        browser.wheel(pixel, -400);
    }
    assert!(browser.tip().is_some_and(|tip| tip.starts_with(&format!("block B{i}\n"))));
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

#[test]
fn one_block_is_drawn() {
    let Some(browser) = Browser::start() else { return };
    let (_folder, page) = report("id,lower,upper,size\nonly,3,4,1\n");
    browser.open(&page);
    let pixel = browser.pixels_in(&[0])[0].expect("it fills the map");
    browser.hover(pixel);
    assert!(browser.tip().is_some_and(|tip| tip.starts_with("block only\n") && tip.contains("1 B")));
    assert_eq!(browser.errors(), [Value::Null; 0]);
}
