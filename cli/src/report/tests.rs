use super::*;
use sublet_core::trace::{Event, Op, Row};
use sublet_core::{Block, Constraints, Workspace, verify};

use crate::problem::Trace;

const HOSTILE: &str = "</script><script>alert(1)</script><!--]]>&\"'\u{1}\\";

/// Runs `write` on a picture of `blocks` at `offsets`.
fn written(problem: &Problem, offsets: &[u64], write: impl Fn(&Picture<'_>, &mut Vec<u8>) -> io::Result<()>) -> String {
    let len = verify::workspace(offsets.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let scratch = Workspace::new(&mut words, &mut indices);
    let plan = verify::verify(&problem.blocks, offsets, &Constraints::NONE, scratch).unwrap();
    let row = SolverRow {
        solver: HOSTILE.into(),
        peak: plan.peak(),
        lower_bound: plan.max_load(),
        optimal: false,
        nodes: 7,
        seconds: 0.25,
    };
    let picture = Picture { problem, plan: &plan, solver: HOSTILE, optimal: true, rows: vec![row], run: None };
    let mut out = Vec::new();
    write(&picture, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn instance(blocks: Vec<Block>, id: &str) -> Problem {
    let ids = (0..blocks.len()).map(|i| format!("{id}{i}")).collect();
    Problem { name: id.into(), blocks, ids, ..Problem::default() }
}

/// A tower of `n` blocks, each alive longer than the one below it, and where they are.
fn tower(n: u32) -> (Vec<Block>, Vec<u64>) {
    (0..n).map(|i| (Block::new(0, i + 1, 64), u64::from(i) * 64)).unzip()
}

/// The data inside a page, read as a browser does: up to the first end tag.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="plan">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// The colour and the corners of each block in an image, in the order in which they are drawn.
fn rectangles(image: &str) -> Vec<(String, [f64; 4])> {
    let document = roxmltree::Document::parse(image).unwrap();
    let blocks = document.descendants().filter(|n| n.attribute("class") == Some("blocks"));
    let number = |n: roxmltree::Node<'_, '_>, name| n.attribute(name).unwrap().parse::<f64>().unwrap();
    let rectangle = |n: roxmltree::Node<'_, '_>| {
        let (x, y) = (number(n, "x"), number(n, "y"));
        let color = n.parent().unwrap().attribute("fill").unwrap().into();
        (color, [x, y, x + number(n, "width"), y + number(n, "height")])
    };
    blocks.flat_map(|g| g.children().filter(roxmltree::Node::is_element)).map(rectangle).collect()
}

#[test]
fn names_cannot_leave_their_place() {
    let (blocks, offsets) = tower(3);
    let mut problem = instance(blocks, HOSTILE);
    let op_names = vec![HOSTILE.into()];
    let rows = vec![Row { op: Op::First(0), event: Event::Malloc, ..Row::default() }];
    problem.trace = Some(Trace { rows, op_names, ..Trace::default() });

    let page = written(&problem, &offsets, html);
    let data = data(&page);
    assert_eq!(data["name"], problem.title());
    assert_eq!(data["solver"], HOSTILE);
    assert_eq!(data["rows"][0]["solver"], HOSTILE);
    assert_eq!(data["id"][2], format!("{HOSTILE}2"));
    assert_eq!(data["ops"][0], format!("0 {HOSTILE}"));
    let mut swept = Vec::new();
    curve(HOSTILE, &serde_json::json!({ "device": HOSTILE }), &mut swept).unwrap();
    for page in [&page, &String::from_utf8(swept).unwrap()] {
        // The two scripts of the template, each with its end, and no other.
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
        assert!(!page.contains("<!--"));
    }

    let image = written(&problem, &offsets, svg);
    let document = roxmltree::Document::parse(&image).unwrap();
    assert!(document.descendants().all(|n| n.tag_name().name() != "script"));
    let title = document.descendants().find(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "title"))).unwrap();
    assert_eq!(title.text(), Some(&*format!("Memory map of {}", problem.title().replace('\u{1}', "\u{fffd}"))));
}

#[test]
fn the_pages_need_nothing_outside_them() {
    let (blocks, offsets) = tower(2);
    let page = written(&instance(blocks, "b"), &offsets, html);
    let mut swept = Vec::new();
    curve("b", &serde_json::json!({}), &mut swept).unwrap();
    let page = page + &String::from_utf8(swept).unwrap();
    for outside in ["http://", "https://", "src=", "href=", "@import", "url(", "fetch(", "{{"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn every_block_of_a_small_plan_is_a_rectangle_in_its_place() {
    let (blocks, offsets) = tower(1000);
    let image = written(&instance(blocks, "b"), &offsets, svg);
    let rectangles = rectangles(&image);
    assert_eq!(rectangles.len(), 1000);
    for pair in rectangles.windows(2) {
        let ([left, top, right, _], [next_left, _, next_right, next_bottom]) = (pair[0].1, pair[1].1);
        assert!((left - next_left).abs() < 0.02 && next_right > right, "{pair:?}");
        assert!((next_bottom - top).abs() < 0.52, "{pair:?}");
    }
}

#[test]
fn what_cannot_be_seen_of_a_large_plan_is_left_out() {
    let (blocks, offsets) = tower(20_000);
    let image = written(&instance(blocks, "b"), &offsets, svg);
    let rectangles = rectangles(&image);
    assert!((500..2000).contains(&rectangles.len()), "{}", rectangles.len());
    // They still reach from the first address to the last, without a gap.
    for pair in rectangles.windows(2) {
        let (top, next_bottom) = (pair[0].1[1], pair[1].1[3]);
        assert!((next_bottom - top).abs() < 0.02, "{pair:?}");
    }
    let height = rectangles[0].1[3] - rectangles[rectangles.len() - 1].1[1];
    assert!((height - 440.0 / 1.07).abs() < 1.0, "{height}");
}

#[test]
fn no_blocks_and_one_block_are_pictures_too() {
    let nothing = instance(vec![], "none");
    let image = written(&nothing, &[], svg);
    assert!(rectangles(&image).is_empty());
    assert!(image.contains("No blocks"));
    assert_eq!(data(&written(&nothing, &[], html))["steps"], serde_json::json!([0, 1]));

    // The last step and the largest block that there is a plan for.
    let one = instance(vec![Block::new(u32::MAX - 1, u32::MAX, u64::MAX - 1)], "one");
    let image = written(&one, &[0], svg);
    assert_eq!(rectangles(&image).len(), 1);
    assert!(image.contains("peak = max load 16 EiB"));
    assert_eq!(data(&written(&one, &[0], html))["peak"], u64::MAX - 1);
}

#[test]
fn ops_have_colours_by_the_area_that_they_fill() {
    // Op k is called "k" and allocates k + 1 bytes; ops 12 and 13 run again under the name of op 0.
    let names: Vec<String> = (0..12).map(|k| k.to_string()).chain(["0".into(), "0".into()]).collect();
    let ops = (0..14).map(|k| if k < 12 { Op::First(k) } else { Op::Rerun(k) }).chain([Op::None]);
    let rows: Vec<_> = (0..).zip(ops).map(|(block, op)| Row { block, op, ..Row::default() }).collect();
    let blocks: Vec<_> = (0..15).map(|i| Block::new(i, i + 1, u64::from(i) + 1)).collect();
    let mut problem = instance(blocks, "b");
    problem.trace = Some(Trace { rows, op_names: names, ..Trace::default() });
    let data = data(&written(&problem, &[0; 15], html));

    let labels: Vec<_> =
        data["colorings"][0]["groups"].as_array().unwrap().iter().map(|g| g["label"].as_str().unwrap()).collect();
    let expected = ["0", "11", "10", "9", "8", "7", "6", "5", "4", "3", "2 other ops", "no op: persistent or input"];
    assert_eq!(labels, expected);
    assert_eq!(data["colorings"][0]["groups"][0]["blocks"], 3);
    assert_eq!(data["colorings"][0]["group"], serde_json::json!([0, 10, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 11]));
    assert_eq!(data["ops"][13], "13' 0");
    assert_eq!((&data["op"][13], &data["op"][14]), (&13.into(), &serde_json::Value::Null));
    let mut colors: Vec<_> =
        data["colorings"][0]["groups"].as_array().unwrap().iter().map(|g| g["color"].to_string()).collect();
    colors.sort();
    colors.dedup();
    assert_eq!(colors.len(), 12);
}

#[test]
fn without_ops_sizes_have_colours() {
    let sizes = [1, 3, 1 << 20, (1 << 20) + 1, (1 << 21) - 1, 1 << 21, 1 << 28];
    let blocks = (0..).zip(sizes).map(|(i, size)| Block::new(i, i + 1, size)).collect();
    let data = data(&written(&instance(blocks, "b"), &[0; 7], html));
    let groups: Vec<_> = data["colorings"][0]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| (g["label"].as_str().unwrap(), g["blocks"].clone()))
        .collect();
    let expected = [("below 2 MiB", 5.into()), ("2 MiB to 4 MiB", 1.into()), ("256 MiB to 512 MiB", 1.into())];
    assert_eq!(groups, expected);
    assert_eq!(data["colorings"][0]["group"], serde_json::json!([0, 0, 0, 0, 0, 1, 2]));
}

#[test]
fn the_load_curve_and_its_peak() {
    let blocks = vec![Block::new(5, 9, 10), Block::new(7, 12, 20), Block::new(9, 10, 10)];
    let data = data(&written(&instance(blocks, "b"), &[20, 0, 20], html));
    assert_eq!(data["curve_step"], serde_json::json!([5, 7, 9, 10, 12]));
    assert_eq!(data["curve_load"], serde_json::json!([10, 30, 30, 20, 0]));
    assert_eq!((&data["peak_step"], &data["max_load"]), (&7.into(), &30.into()));
    assert_eq!(data["steps"], serde_json::json!([5, 12]));
}

#[test]
fn numbers_for_people() {
    let bytes: Vec<_> = [0, 1, 1023, 1024, 1536, 1_048_064, 1 << 20, 10_066_330, 105_906_176, 3 << 30, u64::MAX]
        .into_iter()
        .map(numbers::bytes)
        .collect();
    let expected =
        ["0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "1 MiB", "9.6 MiB", "101 MiB", "3 GiB", "16 EiB"];
    assert_eq!(bytes, expected);
    assert_eq!([0, 999, 1000, 1_234_567].map(numbers::whole), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(
        [(0, 8), (1, 8), (9, 8), (64, 8), (65, 8), (u64::MAX, 1)].map(|(n, m)| numbers::byte_tick(n, m)),
        [1, 1, 2, 8, 16, 1 << 63]
    );
    assert_eq!(
        [(1, 10), (11, 10), (21, 10), (51, 10), (4946, 10), (u64::MAX, 1)].map(|(n, m)| numbers::round_tick(n, m)),
        [1, 2, 5, 10, 500, u64::MAX]
    );
}
