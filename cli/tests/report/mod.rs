//! The report as a person meets it: opened in a real Chromium, pointed at, zoomed and dragged with real mouse events.

mod browser;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doctor::fragmented;
use crate::support::{Folder, STALLING, sublet};
use browser::Browser;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Plans an instance and draws its report. Returns the folder that holds the report, and the report.
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

    // The wheel makes the block under the pointer larger, and the block stays there.
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
#[ignore = "long: ./ci.sh test runs it"]
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

/// Of a long table the rows in view are made; it is searched by name and sorted by a heading.
#[test]
fn a_long_table_is_searched_and_sorted() {
    let Some(browser) = Browser::start() else { return };
    let mut instance = String::from("id,lower,upper,size\n");
    for i in 0..3000u64 {
        writeln!(instance, "B{i},{},{},{}", i / 2, i / 2 + 9, 1 + i * 7919 % 3000).expect("a string takes it");
    }
    let (_folder, page) = report(&instance);
    browser.open(&page);
    let search = |text: &str| {
        browser.ask(&format!(
            "const s = document.getElementById('search'); s.value = '{text}'; s.dispatchEvent(new Event('input'))"
        ));
        browser.settle();
    };
    let rows = "return [...document.querySelectorAll('#alive tr.block')].map(row => row.cells[0].innerText.trim())";
    let heading = "return document.querySelector('#alive h2').innerText";
    search("b");
    let shown = browser.ask(rows).as_array().unwrap().len();
    assert!((10..200).contains(&shown), "{shown} rows are made");
    assert!(browser.ask(heading).as_str().unwrap().ends_with("3,000 of 3,000"), "{}", browser.ask(heading));
    search("b1234");
    assert_eq!(browser.ask(rows), json!(["B1234"]));
    search("");
    browser.ask("[...document.querySelectorAll('#alive th button')].find(b => b.innerText === 'from step').click()");
    let begin = "return [...document.querySelectorAll('#alive tr.block')].map(row => Number(row.cells[5].innerText.replace(',', '')))";
    let begins: Vec<f64> = browser.ask(begin).as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(begins.len() > 5 && begins.is_sorted_by(|a, b| a >= b), "{begins:?}");
    // The end of the table is there once it is scrolled to.
    search("b");
    browser.ask("const s = document.querySelector('#alive .scroll'); s.scrollTop = s.scrollHeight");
    browser.settle();
    assert!(browser.ask(rows).as_array().unwrap().iter().any(|name| name == "B0"));
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

/// At 390 pixels nothing sticks out, a tap tells the block, and two fingers zoom.
#[test]
fn a_phone_shows_all_of_it() {
    let Some(browser) = Browser::start() else { return };
    let mut instance = String::from("id,lower,upper,size\n");
    for (id, lower, upper, size) in FOUR {
        writeln!(instance, "{id},{lower},{upper},{size}").expect("a string takes it");
    }
    let (_folder, page) = report(&instance);
    browser.phone();
    browser.open(&page);
    assert_eq!(browser.ask("return [innerWidth, document.documentElement.scrollWidth]"), json!([390, 390]));
    let (x, y) = browser.pixels_in(&[2])[0].expect("it is large");
    browser.touch(&[[(x, y), (x, y)]]);
    assert!(browser.tip().is_some_and(|tip| tip.starts_with("block late\n")), "{:?}", browser.tip());
    let box_of_tip =
        "const b = document.getElementById('tip').getBoundingClientRect(); return b.left >= 0 && b.right <= 390";
    assert_eq!(browser.ask(box_of_tip), true);
    let everything = browser.range();
    browser.touch(&[[(x - 20, y), (x - 60, y)], [(x + 20, y), (x + 60, y)]]);
    assert_ne!(browser.range(), everything, "two fingers that part zoom in");
    // What is drawn has the font of the page.
    let fonts = "return [pen(map, map.canvas).font(12), getComputedStyle(document.body).fontFamily]";
    let fonts = browser.ask(fonts);
    assert!(fonts[0].as_str().unwrap().ends_with(fonts[1].as_str().unwrap()), "{fonts}");
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

/// The pages of a diagnosis and of a comparison, at both widths: nothing sticks out, and a pointer is told who holds what.
#[test]
fn a_diagnosis_and_a_comparison_are_drawn() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let snapshot = folder.file("snapshot.pickle", fragmented());
    let trace = folder.file("trace.csv", STALLING);
    let [diagnosis, comparison] = ["doctor.html", "compare.html"].map(|name| folder.path(name));
    assert_eq!(sublet(&["doctor", &snapshot, "--report", &diagnosis]).status, 0);
    assert_eq!(sublet(&["compare", &trace, "--report", &comparison]).status, 0);
    for phone in [false, true] {
        if phone {
            browser.phone();
        }
        browser.open(diagnosis.as_ref());
        browser.settle();
        let bands = "return [...document.querySelectorAll('#held .band, #held .reserved, #held .out')].map(p => p.getAttribute('class'))";
        assert_eq!(browser.ask(bands), json!(["band", "band", "band", "band", "reserved", "out"]));
        let place = "const b = document.getElementById('held').getBoundingClientRect(); return [Math.round(b.left + b.width / 2), Math.round(b.top + b.height / 2)]";
        let place = browser.ask(place);
        if !phone {
            browser.hover((place[0].as_i64().unwrap(), place[1].as_i64().unwrap()));
            let tip = browser.tip().expect("a moment is told");
            assert!(tip.contains("in use") && tip.contains("net.py:10 forward") && tip.contains("reserved"), "{tip}");
        }
        let refused = browser.ask("return document.getElementById('refused').innerText");
        assert!(refused.as_str().unwrap().contains("12 MiB asked full: by a plan"), "{refused}");
        let width = "const e = document.documentElement; return [e.clientWidth, e.scrollWidth]";
        let widths = browser.ask(width);
        assert_eq!(widths[0], widths[1], "the diagnosis sticks out");
        browser.open(comparison.as_ref());
        browser.settle();
        let rows =
            browser.ask("return [...document.querySelectorAll('.bars tbody tr')].map(row => row.cells[0].innerText)");
        let rows = rows.as_array().unwrap();
        assert!(rows.contains(&json!("auto")) && rows.contains(&json!("pytorch")), "{rows:?}");
        // The longest bar is that of the one that takes most, and the line of the max load is left of its end.
        let bars = "return [...document.querySelectorAll('.bars i')].map(bar => Number.parseFloat(bar.style.width))";
        let widest = browser.ask(bars).as_array().unwrap().iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        assert!((widest - 100.0).abs() < 1e-9, "{widest}");
        let widths = browser.ask(width);
        assert_eq!(widths[0], widths[1], "the comparison sticks out");
        assert_eq!(browser.errors(), [Value::Null; 0]);
    }
    for (command, file) in [("doctor", &snapshot), ("compare", &trace)] {
        let ran = sublet(&[command, file, "--report", &folder.path("x.svg")]);
        assert!(ran.status == 2 && ran.err.contains("is drawn as a page"), "{ran:?}");
    }
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

/// Fits a trace and draws its report; returns the report.
fn fitted(folder: &Folder, trace: &str, args: &[&str], report: &str) -> PathBuf {
    let (trace, report) = (folder.file("trace.csv", trace), folder.path(report));
    let ran = sublet(&[&["fit", &trace, "--report", &report], args].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    report.into()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one page, and all that is pointed at in it")]
fn a_fit_has_joined_stays_and_lanes_on_one_time_axis() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let page = fitted(&folder, STALLING, &["--limit", "17M"], "fit.html");
    browser.open(&page);
    let plan = browser.ask("return JSON.parse(document.getElementById('plan').textContent)");
    let run = &plan["run"];
    let index = |id: &str| plan["id"].as_array().unwrap().iter().position(|i| i == id).expect("a residency");
    let (first, second) = (index("a"), index("a#1"));
    assert_eq!(plan["next"][first], second);
    let coloring = &plan["colorings"][0];
    let group = usize::try_from(coloring["group"][first].as_u64().unwrap()).unwrap();
    let color = coloring["groups"][group]["color"].as_str().unwrap();
    assert_eq!(coloring["groups"][group]["label"], "swapped to the host and back");
    assert_eq!(coloring["group"][first], coloring["group"][second]);

    // Five views of one width below each other.
    let boxes = browser.ask(
        "return [...document.querySelectorAll('.plot')].map(p => [p.getBoundingClientRect().left, p.clientWidth, p.className])",
    );
    let boxes = boxes.as_array().unwrap();
    let kinds: Vec<&str> = boxes.iter().map(|b| b[2].as_str().unwrap()).collect();
    assert_eq!(kinds, ["plot map", "plot load", "plot lane compute", "plot lane out", "plot lane in"]);
    assert!(boxes.iter().all(|b| (&b[0], &b[1]) == (&boxes[0][0], &boxes[0][1])), "{boxes:?}");

    // The first residency ends with the copy out, since its free waits for the copy. The second one begins with the
    // copy in.
    let up = |residency: usize| {
        let most = plan["run"]["limit"].as_f64().unwrap() * 1.07;
        (plan["offset"][residency].as_f64().unwrap() + 0.25 * plan["size"][residency].as_f64().unwrap()) / most
    };
    let edges = || {
        let [left, right] = [first, second].map(|residency| browser.extents("map", up(residency), color));
        let (out, back) = (browser.extents("out", 0.9, color), browser.extents("in", 0.9, color));
        (
            left.first().expect("a residency").1,
            out.last().expect("a copy").1,
            right.last().expect("a residency").0,
            back[0].0,
        )
    };
    let (stay_end, copy_end, stay_begin, copy_begin) = edges();
    assert!((stay_end - copy_end).abs() <= 1, "{stay_end} {copy_end}");
    assert!((stay_begin - copy_begin).abs() <= 1, "{stay_begin} {copy_begin}");
    assert!(stay_end + 20 < stay_begin, "{stay_end} {stay_begin}");

    // Compute waits for both copies, and is red meanwhile, up to the end of each.
    let red = browser.extents("compute", 0.5, "#d4202e");
    assert_eq!(red.len(), run["stalls"]["begin"].as_array().unwrap().len());
    assert_eq!(red.len(), 2);
    assert!((red[0].1 - copy_end).abs() <= 1, "{red:?} {copy_end}");
    browser.hover(browser.pixel("compute", red[1].0 + 4, 0.5));
    let tip = browser.tip().expect("a stall is told");
    assert!(tip.starts_with("stall\n") && tip.contains("copy in of block a"), "{tip}");

    // To point at a copy shows its figures, and marks both residencies of its block and the line that joins them.
    let between = {
        let middle = |residency: usize| {
            up(residency) + 0.25 * plan["size"][residency].as_f64().unwrap() / (1.07 * run["limit"].as_f64().unwrap())
        };
        browser.pixel("map", i64::midpoint(stay_end, stay_begin), f64::midpoint(middle(first), middle(second)))
    };
    browser.hover((5, 5));
    assert_eq!(browser.marked(between), 0);
    browser.hover(browser.pixel("out", copy_end - 5, 0.5));
    let tip = browser.tip().expect("a copy is told");
    for part in ["copy out of block a\n", "8 MiB (8,388,608 B)", "709.1 µs", "waits"] {
        assert!(tip.contains(part), "{part:?} is not in {tip:?}");
    }
    assert!(browser.marked(between) > 0, "no tether");
    let edge = browser.pixel("map", stay_begin, up(second));
    assert!(browser.marked(edge) > 0, "the other residency is not marked");

    // A residency tells which it is, and of the copies at its ends.
    browser.hover(browser.pixel("map", stay_end - 8, up(first)));
    let tip = browser.tip().expect("a residency is told");
    for part in ["block a\n", "1 of 2", "8 MiB (8,388,608 B)", "copied out", "waits"] {
        assert!(tip.contains(part), "{part:?} is not in {tip:?}");
    }
    assert!(!tip.contains("copied in"), "{tip}");
    assert!(browser.marked(edge) > 0 && browser.marked(between) > 0);

    // A click on a block shows its gaps: what was done, and what the alternatives would have cost. A click beside the
    // block does not show them.
    let told = "return [...document.querySelectorAll('#gaps td')].map(cell => cell.innerText)";
    let shown = "return !document.getElementById('gaps').hidden";
    assert_eq!(browser.ask(shown), false);
    browser.drag(browser.pixel("map", stay_end - 8, up(first)), (0, 0));
    assert_eq!(
        browser.ask("return document.querySelector('#gaps h2').innerText.split('\\n')[0]"),
        "Block a8 MiB (8,388,608 B)"
    );
    let cells = browser.ask(told);
    let cells: Vec<&str> = cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
    let [.., idle, done, costs, swap, rerun, load] = cells[..] else { panic!("{cells:?}") };
    assert_eq!((done, swap, rerun), ("swapped", "1.418 ms", "–"), "{cells:?}");
    assert!(idle.ends_with("ms") && costs.ends_with('s') && load.ends_with("above the limit"), "{cells:?}");
    browser.drag(browser.pixel("map", i64::midpoint(stay_end, stay_begin), up(first)), (0, 0));
    assert!(browser.ask(shown) == false || browser.ask(told) != json!(cells), "another block is told");

    // Zoom in a lane and drag in the load curve move all.
    let everything = browser.range();
    browser.wheel(browser.pixel("out", copy_end, 0.5), -200);
    assert_ne!(browser.range(), everything);
    browser.drag(browser.pixel("load", 500, 0.5), (-60, 0));
    let (zoomed_end, zoomed_copy, zoomed_begin, zoomed_back) = edges();
    assert!(zoomed_end != stay_end, "nothing moved");
    assert!((zoomed_end - zoomed_copy).abs() <= 1, "{zoomed_end} {zoomed_copy}");
    assert!((zoomed_begin - zoomed_back).abs() <= 1, "{zoomed_begin} {zoomed_back}");
    assert!(zoomed_begin - zoomed_end > stay_begin - stay_end, "{zoomed_begin} {zoomed_end}");
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

#[test]
fn a_copy_that_nobody_waits_for_is_called_hidden() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let slower = |line: &str| match line.split_once(',') {
        Some((time, rest)) if time != "time_ns" => format!("{},{rest}\n", 10 * time.parse::<u64>().unwrap()),
        _ => format!("{line}\n"),
    };
    let slow: String = STALLING.lines().map(slower).collect();
    browser.open(&fitted(&folder, &slow, &["--limit", "17M"], "fit.html"));
    assert!(browser.extents("compute", 0.5, "#d4202e").is_empty());
    let copies = browser.ask("return JSON.parse(document.getElementById('plan').textContent).run.copies.waited");
    assert_eq!(copies, json!([0, 0]));
    let x = browser.ask(
        "const { run } = JSON.parse(document.getElementById('plan').textContent);
         return Math.round(run.copies.begin[1] / run.time_ns * document.querySelector('.plot.in').clientWidth) + 3",
    );
    browser.hover(browser.pixel("in", x.as_i64().unwrap(), 0.5));
    let tip = browser.tip().expect("a copy is told");
    assert!(tip.starts_with("copy in of block a\n") && tip.contains("hidden"), "{tip}");
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

#[test]
fn the_image_of_a_fit_has_the_same_lanes() {
    let folder = Folder::new();
    let image = fs::read_to_string(fitted(&folder, STALLING, &["--limit", "17M"], "fit.svg")).unwrap();
    let document = roxmltree::Document::parse(&image).unwrap();
    let class = |name: &str| -> Vec<roxmltree::Node<'_, '_>> {
        document
            .descendants()
            .filter(|n| n.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == name)))
            .collect()
    };
    let bars = |name: &str| -> Vec<[f64; 2]> {
        let number = |n: &roxmltree::Node<'_, '_>, name| n.attribute(name).unwrap().parse::<f64>().unwrap();
        let bar = |n: roxmltree::Node<'_, '_>| [number(&n, "x"), number(&n, "x") + number(&n, "width")];
        class(name)[0].children().filter(roxmltree::Node::is_element).map(bar).collect()
    };
    let (compute, stalls, out, back) = (bars("compute"), bars("stalls"), bars("out"), bars("in"));
    assert_eq!((compute.len(), stalls.len(), out.len(), back.len()), (5, 2, 1, 1));
    assert!((stalls[0][1] - out[0][1]).abs() < 0.02 && (stalls[1][1] - back[0][1]).abs() < 0.02);
    assert_eq!((class("limit").len(), class("before").len()), (2, 1));
}

/// The distinct values of a column of a CSV file, of the rows for which `is` is true.
fn column_where(csv: &str, column: usize, is: impl Fn(&[&str]) -> bool) -> BTreeSet<String> {
    let rows = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    rows.filter(|row| is(row)).map(|row| row[column].to_owned()).collect()
}

#[test]
fn a_fit_is_coloured_by_fate_or_by_op() {
    let folder = Folder::new();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/vgg16_cifar_train_b100.csv");
    let (page, out) = (folder.path("fit.html"), folder.path("out"));
    let args = ["fit", trace, "--limit", "30%", "--using", "swap,recompute,relu", "--report", &page, "--output", &out];
    assert_eq!(sublet(&args).status, 0);
    let text = fs::read_to_string(&page).unwrap();
    let (_, data) = text.split_once(r#"id="plan">"#).unwrap();
    let plan: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let ids: Vec<&str> = plan["id"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    // The blocks of the trace that a colouring puts into a group, masks apart.
    let blocks = |coloring: usize, label: &str| -> BTreeSet<String> {
        let coloring = &plan["colorings"][coloring];
        let groups = coloring["groups"].as_array().unwrap();
        let group = groups.iter().position(|g| g["label"] == label).unwrap_or(usize::MAX);
        let of_group = |i: &usize| coloring["group"][*i] == group;
        let block = |i: usize| ids[i].split('#').next().unwrap().to_owned();
        (0..ids.len()).filter(of_group).map(block).filter(|id| !id.ends_with('~')).collect()
    };

    let rewritten = fs::read_to_string(Path::new(&out).join("rewritten.csv")).unwrap();
    let copied = column_where(&rewritten, 2, |row| row[1].starts_with("swap_") && !row[2].ends_with('~'));
    let recomputed = column_where(&rewritten, 2, |row| row[1] == "write" && row[4].ends_with('\''));
    let masked = column_where(&rewritten, 2, |row| row[1] == "malloc" && row[2].ends_with('~'));
    assert!(!copied.is_empty() && !recomputed.is_empty() && !masked.is_empty());
    assert_eq!(plan["colorings"][0]["by"], "what becomes of the block");
    assert_eq!(blocks(0, "recomputed"), recomputed);
    assert_eq!(blocks(0, "swapped to the host and back"), copied.difference(&recomputed).cloned().collect());
    let freed_early: BTreeSet<String> = masked.iter().map(|mask| mask.trim_end_matches('~').to_owned()).collect();
    let freed_early: BTreeSet<String> = freed_early.difference(&recomputed).cloned().collect();
    assert_eq!(blocks(0, "replaced by its mask"), freed_early.difference(&copied).cloned().collect());

    // By op a block has the name that it has in the recording.
    let recording = fs::read_to_string(trace).unwrap();
    let no_op = column_where(&recording, 2, |row| row[1] == "malloc" && row[4].is_empty());
    assert_eq!(plan["colorings"][1]["by"], "op that allocates the block");
    assert_eq!(blocks(1, "no op: persistent or input"), no_op);
    assert!(!blocks(1, "convolution").is_empty());

    let Some(browser) = Browser::start() else { return };
    browser.open(page.as_ref());
    let legend = || browser.ask("return document.getElementById('legend').innerText").as_str().unwrap().to_owned();
    assert!(legend().contains("recomputed") && !legend().contains("convolution"), "{}", legend());
    let before = browser.colors();
    browser.ask("document.querySelectorAll('#legend .by button')[1].click()");
    browser.settle();
    assert!(!legend().contains("recomputed") && legend().contains("convolution"), "{}", legend());
    assert_ne!(browser.colors(), before);
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

/// A trace of `layers` operators forward and as many backward. Each backward one reads what its forward one wrote.
fn there_and_back(layers: u32) -> String {
    let mut trace = String::from("time_ns,event,block,bytes,op\n");
    let mut now = 0;
    for op in 0..layers {
        writeln!(trace, "{now},malloc,{op},{},{op}", 2 << 20).unwrap();
        if op > 0 {
            writeln!(trace, "{now},read,{},,{op}", op - 1).unwrap();
        }
        now += 200_000;
        writeln!(trace, "{now},write,{op},,{op}").unwrap();
    }
    for (op, block) in (layers..).zip((0..layers).rev()) {
        writeln!(trace, "{now},read,{block},,{op}").unwrap();
        now += 200_000;
        writeln!(trace, "{now},write,{block},,{op}\n{now},free,{block},,").unwrap();
    }
    trace
}

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn twenty_thousand_rows_are_drawn_and_told() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let args = ["--limit", "4G", "--using", "swap"];
    let trace = there_and_back(3400);
    assert!(trace.lines().count() > 20_000);
    browser.open(&fitted(&folder, &trace, &args, "fit.html"));
    let run = browser.ask("return JSON.parse(document.getElementById('plan').textContent).run");
    let copies = run["copies"]["begin"].as_array().unwrap();
    assert!(copies.len() > 1000, "{} copies", copies.len());
    for _ in 0..5 {
        browser.wheel(browser.pixel("out", 100, 0.5), -400);
    }
    browser.hover(browser.pixel("out", 100, 0.5));
    let tip = browser.tip().expect("a copy is told");
    assert!(tip.starts_with("copy out of block ") && tip.contains("2 MiB"), "{tip}");
    assert_eq!(browser.errors(), [Value::Null; 0]);
}

#[test]
fn a_sweep_shows_every_means_and_the_bound() {
    let Some(browser) = Browser::start() else { return };
    let folder = Folder::new();
    let (trace, page) = (folder.file("t.csv", STALLING), folder.path("curve.html"));
    let swept =
        sublet(&["sweep", &trace, "--using", "swap,recompute", "--points", "5", "--report", &page, "--json"]).json();
    browser.open(page.as_ref());
    let names = swept["policies"].as_array().unwrap();
    assert_eq!(names.iter().map(|n| n.as_str().unwrap()).collect::<Vec<_>>(), ["joint", "swap", "recompute"]);
    let about = swept["about"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    for (name, about) in names.iter().map(|n| n.as_str().unwrap()).zip(about) {
        let drawn = browser.ask(&format!(
            "return document.querySelector('#curve .policy.{name} polyline').getAttribute('points').split(' ').length"
        ));
        let points = swept["points"].as_array().unwrap().iter().filter(|p| p["policy"] == name).count();
        assert_eq!(drawn, points, "{name}");
        let legend = browser.ask("return document.getElementById('legend').innerText");
        assert!([name, about].iter().all(|text| legend.as_str().unwrap().contains(text)), "{name}");
    }
    // The mark of the bound lies where its bytes are on the axis of limits: between the least limit and the peak.
    let lines = browser.ask(
        "const x = e => e.getBoundingClientRect().left, all = s => [...document.querySelectorAll(s)].map(x);
         const first = document.querySelector('#curve .policy.joint path').getBoundingClientRect();
         return [first.left + first.width / 2, x(document.querySelector('#curve .bound')), x(document.querySelector('#curve .least-limit')), all('#curve .least').length]",
    );
    let [peak_x, bound_x, least_x] = [0, 1, 2].map(|i| lines[i].as_f64().unwrap());
    let [peak, bound, least] =
        ["original_peak", "swap_lower_bound", "least_limit"].map(|name| swept[name].as_f64().unwrap());
    let expected = peak_x + (least_x - peak_x) * (peak - bound) / (peak - least);
    assert!((bound_x - expected).abs() < 2.0, "{bound_x} {expected}");
    assert!((1..=3).contains(&lines[3].as_u64().unwrap()), "{lines}");

    // To point at a limit tells what every means makes of it.
    #[expect(clippy::cast_possible_truncation, reason = "a pixel of a window")]
    browser.hover((peak_x as i64 + 3, 400));
    let tip = browser.tip().expect("a limit is told");
    assert!(tip.starts_with("limit 22 MiB, 100.0 % of the peak\n"), "{tip}");
    assert!(names.iter().all(|name| tip.contains(name.as_str().unwrap())) && tip.contains("0.00 %"), "{tip}");

    // Another scale moves the points; a curve can be hidden.
    let points =
        || browser.ask("return document.querySelector('#curve .policy.joint polyline').getAttribute('points')");
    let before = points();
    browser.ask("document.querySelector('#tops button:not([aria-pressed=true])').click()");
    browser.settle();
    assert_ne!(points(), before);
    browser.ask("document.querySelector('#legend button').click()");
    browser.settle();
    assert_eq!(browser.ask("return document.querySelector('#curve .policy.joint')"), Value::Null);

    // On a phone nothing sticks out, and no mark of an axis lies over another.
    browser.phone();
    browser.open(page.as_ref());
    browser.settle();
    assert_eq!(browser.ask("return [innerWidth, document.documentElement.scrollWidth]"), json!([390, 390]));
    let marks = "const b = [...document.querySelectorAll('#curve .along')].map(e => e.getBoundingClientRect());
                 return b.every((p, i) => b.slice(i + 1).every(q => p.right < q.left || q.right < p.left || p.bottom <= q.top || q.bottom <= p.top))";
    assert_eq!(browser.ask(marks), true);
    assert_eq!(browser.errors(), [Value::Null; 0]);
}
