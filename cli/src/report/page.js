// The page: lays the views over the shared time axis, turns wheel, drag and keys into zoom and pan, fills the tables.

const plan = prepare(JSON.parse(byId("plan").textContent));

// ---- chart ----

const time = new Axis(...plan.span, 4);
const map = new MapView(plan, time);
const views = [map, new LoadView(plan, time)];
if (plan.run) {
  views.push(new ComputeLane(plan, time), new CopyLane(plan, time, "out", true), new CopyLane(plan, time, "in", false));
}
/** Where the pointer is, as {moment}; null outside. */
let pointer = null;
/** The block that the pointer or a row of the table points out, and the one that was picked in the map or the table. */
let hovered = -1, picked = -1;

const chart = byId("chart");
for (const view of views) {
  view.scale = element("div", { className: `scale vertical ${view.kind}` });
  view.canvas = element("canvas", { ariaLabel: view.name });
  view.overlay = element("canvas", { ariaHidden: true });
  view.plot = element("div", { className: `plot ${view.kind}` }, view.canvas, view.overlay);
  chart.append(view.scale, view.plot);
}
const timeScale = element("div", { className: "scale time" });
chart.append(element("div", { className: "scale axis" }, plan.run ? "time" : "step"), timeScale);

/** A canvas of the size that it has on the page, empty, with the scales of its view. */
function pen(view, canvas) {
  const ratio = devicePixelRatio || 1, style = getComputedStyle(document.body);
  const w = Math.round(view.plot.clientWidth * ratio), h = Math.round(view.plot.clientHeight * ratio);
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const g = canvas.getContext("2d");
  g.clearRect(0, 0, w, h);
  return {
    g, w, h, ratio,
    x: moment => time.place(moment) * w,
    y: value => (1 - view.vertical.place(value)) * h,
    color: name => style.getPropertyValue(`--${name}`),
    font: px => `${px * ratio}px ${style.fontFamily}`,
  };
}

function label(text, property, place) {
  const e = element("span", {}, text);
  e.style[property] = `${place * 100}%`;
  return e;
}

function drawViews() {
  for (const view of views) {
    view.draw(pen(view, view.canvas));
    const mark = view.marks && byteMark(view.vertical.span, view.marks);
    const marks = mark ? view.vertical.marks(mark) : [];
    view.scale.replaceChildren(element("span", { className: "name" }, view.name),
      ...marks.map(value => label(bytes(value, mark), "bottom", view.vertical.place(value))));
  }
  const mark = timeMark(time, map.plot.clientWidth);
  timeScale.replaceChildren(...time.marks(mark).map(moment => label(when(plan, moment, mark), "left", time.place(moment))));
  const { vertical } = map, magnified = (time.all[1] - time.all[0]) / time.span;
  const [lo, hi] = [Math.floor(time.lo), Math.ceil(time.hi)].map(moment => when(plan, moment, time.span / 1000));
  byId("range").textContent = `${plan.run ? "time" : "steps"} ${lo} – ${hi}` +
    ` · addresses ${bytes(vertical.lo)} – ${bytes(vertical.hi)} · time ×${Number(magnified.toPrecision(3))}`;
  drawMarks();
}

function drawMarks() {
  for (const view of views) {
    const p = pen(view, view.overlay);
    if (pointer) {
      p.g.fillStyle = p.color("soft");
      p.g.fillRect(Math.round(p.x(pointer.moment)), 0, 1, p.h);
    }
    view.mark(p, pointer, hovered >= 0 ? hovered : picked);
  }
}

/** Runs `draw` before the next frame, once however often it is asked for. */
function coalesce(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}
const redraw = coalesce(drawViews), remark = coalesce(drawMarks);

/** Where an event is in a view: parts of its width and height, from the low ends of its axes. A mouse tells the corner
    of the pixel that it is on; what is drawn there is what lies under the pixel's middle. */
function placeIn(view, event) {
  const box = view.canvas.getBoundingClientRect();
  return [(event.clientX + .5 - box.left) / box.width, 1 - (event.clientY + .5 - box.top) / box.height];
}

function point(view, event) {
  const [x, y] = placeIn(view, event);
  pointer = { moment: time.value(x) };
  const tip = view.tip(pointer.moment, view.vertical.value(y));
  hovered = tip?.block ?? -1;
  showTip(tip, event.clientX, event.clientY);
  remark();
}

function leave() {
  pointer = null;
  hovered = -1;
  showTip(null);
  remark();
}

function showAll() {
  for (const axis of [time, map.vertical]) axis.reset();
  choosePicked(-1);
  redraw();
}

for (const view of views) {
  let dragged = null, moved = false;
  const { plot } = view;
  /** The fingers on the view, and where each of them was last. */
  const fingers = new Map();
  const pinch = event => {
    const between = () => {
      const [[ax, ay], [bx, by]] = fingers.values();
      return { x: (ax + bx) / 2, y: (ay + by) / 2, apart: Math.hypot((ax - bx) * plot.clientWidth, (ay - by) * plot.clientHeight) };
    };
    const was = between();
    fingers.set(event.pointerId, placeIn(view, event));
    const is = between(), factor = was.apart / Math.max(is.apart, 1);
    for (const [axis, from, to] of [[time, was.x, is.x], ...(view.zooms ? [[view.vertical, was.y, is.y]] : [])]) {
      axis.zoom(factor, to);
      axis.pan(from - to);
    }
    redraw();
  };
  plot.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    dragged = placeIn(view, event);
    moved = fingers.size > 0;
    fingers.set(event.pointerId, dragged);
    plot.setPointerCapture(event.pointerId);
    plot.classList.add("dragging");
    leave();
  });
  plot.addEventListener("pointermove", event => {
    if (!dragged) return point(view, event);
    if (fingers.size === 2 && fingers.has(event.pointerId)) return pinch(event);
    const [x, y] = placeIn(view, event);
    time.pan(dragged[0] - x);
    if (view.zooms) view.vertical.pan(dragged[1] - y);
    moved ||= x !== dragged[0] || y !== dragged[1];
    dragged = [x, y];
    redraw();
  });
  plot.addEventListener("click", event => {
    if (moved) return;
    const [x, y] = placeIn(view, event);
    choosePicked(view.tip(time.value(x), view.vertical.value(y))?.block ?? -1);
    // A finger points only where it taps.
    point(view, event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    plot.addEventListener(end, event => {
      fingers.delete(event.pointerId);
      // A finger that stays goes on dragging from where it is.
      [dragged = null] = fingers.values();
      plot.classList.toggle("dragging", dragged !== null);
    });
  }
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("dblclick", showAll);
  plot.addEventListener("wheel", event => {
    // Some systems turn the wheel sideways while shift is held.
    const turned = event.deltaY || event.deltaX, lines = event.deltaMode === 0 ? 1 : 30;
    const axes = [...(event.altKey ? [] : [time]), ...(view.zooms && !event.shiftKey ? [view.vertical] : [])];
    // With everything in view there is nothing to zoom out of: the page scrolls.
    if (turned > 0 && !axes.some(axis => axis.zoomed)) return;
    event.preventDefault();
    const [x, y] = placeIn(view, event), factor = Math.exp(Math.max(-400, Math.min(400, turned * lines)) * .002);
    for (const axis of axes) axis.zoom(factor, axis === time ? x : y);
    point(view, event);
    redraw();
  }, { passive: false });
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // Before anything is clicked: what does not scroll the page.
  const anywhere = event.target === document.body && "+=-0".includes(event.key);
  if (!anywhere && !chart.contains(event.target)) return;
  const both = change => { for (const axis of [time, map.vertical]) change(axis); };
  const action = {
    ArrowLeft: () => time.pan(-.1), ArrowRight: () => time.pan(.1),
    ArrowUp: () => map.vertical.pan(.1), ArrowDown: () => map.vertical.pan(-.1),
    "+": () => both(axis => axis.zoom(.8, .5)), "=": () => both(axis => axis.zoom(.8, .5)),
    "-": () => both(axis => axis.zoom(1.25, .5)), "0": showAll, Home: showAll, Escape: showAll,
  }[event.key];
  if (!action) return;
  event.preventDefault();
  leave();
  action();
  redraw();
});

const sizes = new ResizeObserver(redraw);
for (const view of views) sizes.observe(view.plot);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// ---- figures and legend ----

const ratio = figure("peak / max load", plan.ratio.toFixed(6),
  ...(plan.optimal ? [element("span", { className: "optimal" }, "optimal")] : []));
if (plan.run) {
  const { run } = plan, percent = part => `${(100 * part).toFixed(1)} %`;
  const stalled = run.stalls.end.reduce((sum, end, i) => sum + end - run.stalls.begin[i], 0);
  const leaving = plan.first.filter((first, i) => first === i && (plan.residencies[i] > 1 || plan.leaves.has(i))).length;
  byId("figures").append(
    figure("footprint", bytes(plan.peak), note(`${percent(plan.peak / run.original_peak)} of what it was`)),
    figure("limit", bytes(run.limit)),
    figure("peak before", bytes(run.original_peak)),
    figure("overhead", run.overhead === null ? "no times" : `${(100 * run.overhead).toFixed(2)} %`, note(stalled ? `${duration(stalled)} of stalls` : "no stall"),
      ...(run.overhead_lower_bound === null ? [] : [note(`at least ${(100 * run.overhead_lower_bound).toFixed(2)} %`)])),
    figure("iteration", duration(run.time_ns)),
    figure("copied", bytes(run.swapped_bytes), note(`${whole(run.copies.residency.length)} copies`)),
    figure("blocks", whole(plan.first.filter((first, i) => first === i).length), note(`${whole(leaving)} leave`)),
    ratio,
    ...(plan.solver ? [figure("policy", plan.solver)] : []),
    figure("device", run.device));
} else {
  byId("figures").append(
    ratio,
    figure("peak", bytes(plan.peak)),
    figure("max load", bytes(plan.max_load)),
    figure("between them", bytes(plan.peak - plan.max_load)),
    figure("blocks", whole(plan.id.length)),
    figure("steps", plan.id.length ? whole(plan.steps[1] - plan.steps[0]) : "0"),
    figure("solver", plan.solver));
}

/** Says what the colours mean. Pointing at a colour brings it forward; where there are several colourings, one is chosen. */
function fillLegend() {
  const chosen = coloring => coloring.by === plan.colored_by;
  const choice = plan.colorings.length < 2 ? [` ${plan.colored_by}`] : plan.colorings.map(coloring => element("button", {
    type: "button", ariaPressed: chosen(coloring), onclick: () => {
      choose(plan, coloring);
      map.recolor();
      fillLegend();
      fillAlive();
      redraw();
    },
  }, coloring.by));
  byId("legend").replaceChildren(element("li", { className: "by" }, "Colour:", ...choice), ...plan.groups.map((group, i) => {
    const light = on => () => { map.spotlight = on ? i : -1; redraw(); };
    return element("li", {}, element("button", {
      type: "button", title: group.label, onmouseenter: light(true), onmouseleave: light(false), onfocus: light(true), onblur: light(false),
    }, swatch(group.color), element("span", {}, group.label), element("small", {}, whole(group.blocks))));
  }));
  byId("legend").hidden = !plan.groups.length;
}
fillLegend();
byId("lines").textContent = plan.peak === plan.max_load
  ? "The line is the peak, which is the max load: no plan of these live ranges needs less. Dotted: the step of the max load."
  : "Solid line: the peak, what this plan needs. Dashed: the max load, below which no plan of these live ranges is. Dotted: its step.";
if (plan.next.length) byId("residencies").textContent = " Point at a block that leaves the device to see where it returns; click it to see why.";
if (plan.run) {
  byId("lanes").textContent = " In the load, grey is what it was before. The lanes are what is computed, copied out and copied in, in" +
    " simulated time; a copy has the colour of its block, a recomputed operator is half pale, and where compute waits for a copy, it is red.";
}

// ---- tables ----

/** Points a block out until another is, and tells its gaps where the trace is fitted; -1 is no block. */
function choosePicked(i) {
  picked = i;
  const section = byId("gaps");
  section.hidden = i < 0 || !plan.run;
  if (section.hidden) return;
  const { gaps, limit } = plan.run;
  const own = gaps.residency.flatMap((residency, k) => plan.first[residency] === plan.first[i] ? [k] : []);
  section.querySelector("h2").replaceChildren(`Block ${nameOf(plan, i)}`,
    element("small", {}, own.length ? exactBytes(plan.size[i]) : "no operator runs between its uses but those that use it"));
  const load = k => bytes(gaps.load_if_kept[k]) +
    (gaps.load_if_kept[k] > limit ? `, ${bytes(gaps.load_if_kept[k] - limit)} above the limit` : "");
  fillTable(section.querySelector("table"), own.length ? [
    ["after", "name", k => plan.ops[gaps.after[k]] ?? ""],
    ["before", "name", k => plan.ops[gaps.before[k]] ?? ""],
    ["idle", "number", k => duration(gaps.idle[k])],
    ["done", "name", k => gaps.choice[k]],
    ["costs", "number", k => duration(gaps.cost[k])],
    ["to swap", "number", k => duration(gaps.swap[k])],
    ["to recompute", "number", k => gaps.recompute[k] === null ? "–" : duration(gaps.recompute[k])],
    ["load if kept", "number", load],
  ] : [], own);
}

/** Points a block out, and brings it into view with some of what is around it. */
function pick(i) {
  choosePicked(i);
  const { from, until, offset, size } = plan;
  const around = (axis, lo, hi) => axis.show(lo - Math.max(hi - lo, 1) * .6, hi + Math.max(hi - lo, 1) * .6);
  around(time, from[i], until[i]);
  around(map.vertical, offset[i], offset[i] + size[i]);
  chart.scrollIntoView({ block: "nearest" });
  redraw();
}

/** The blocks that are alive at the max load, or those whose name or op has the text that is searched for. */
function fillAlive() {
  const section = byId("alive"), asked = byId("search").value.trim().toLowerCase();
  const is = asked
    ? i => nameOf(plan, i).toLowerCase().includes(asked) || (plan.op.length > 0 && (opOf(plan, i) ?? "").toLowerCase().includes(asked))
    : i => plan.start[i] <= plan.peak_step && plan.peak_step < plan.end[i];
  const shown = plan.id.map((_, i) => i).filter(is).sort((a, b) => plan.size[b] - plan.size[a] || a - b);
  section.hidden = !plan.id.length;
  section.querySelector("h2").replaceChildren(...asked
    ? [`Blocks with “${asked}”`, element("small", {}, `${whole(shown.length)} of ${whole(plan.id.length)}`)]
    : ["Alive at the max load",
      element("small", {}, `step ${whole(plan.peak_step)}, ${whole(shown.length)} blocks, ${exactBytes(plan.max_load)}`)]);
  const share = i => plan.size[i] / plan.max_load, largest = shown.length ? share(shown[0]) : 1;
  const bar = i => {
    const e = element("span", { className: "bar" });
    e.style.width = `${120 * share(i) / largest}px`;
    return e;
  };
  const columns = [
    ["block", "name", i => [swatch(plan.groups[plan.group[i]].color), plan.id[i]], i => plan.id[i]],
    ...(plan.op.length ? [["op", "name", i => opOf(plan, i) ?? "", i => opOf(plan, i) ?? ""]] : []),
    ["size", "number", i => bytes(plan.size[i]), i => plan.size[i]],
    ["bytes", "number", i => whole(plan.size[i]), i => plan.size[i]],
    ["of the load", "number", i => `${(100 * share(i)).toFixed(2)} %`, i => plan.size[i]],
    ["", "", bar],
    ["from step", "number", i => whole(plan.start[i]), i => plan.start[i]],
    ["until", "number", i => whole(plan.end[i]), i => plan.end[i]],
    ["offset", "number", i => whole(plan.offset[i]), i => plan.offset[i]],
  ];
  const rowOf = i => {
    const point = on => () => { hovered = on ? i : -1; remark(); };
    return element("tr", {
      className: "block", tabIndex: 0, title: "Show it in the map", onclick: () => pick(i),
      onkeydown: event => { if (event.key === "Enter") pick(i); },
      onmouseenter: point(true), onmouseleave: point(false), onfocus: point(true), onblur: point(false),
    });
  };
  fillLongTable(section.querySelector(".scroll"), columns, shown, rowOf);
}
byId("search").addEventListener("input", coalesce(fillAlive));
fillAlive();

if (plan.rows.length) {
  byId("solvers").hidden = false;
  fillTable(byId("solvers").querySelector("table"), [
    ["solver", "name", row => row.solver],
    ["peak", "number", row => whole(row.peak)],
    ["lower bound", "number", row => whole(row.lower_bound)],
    ["peak / bound", "number", row => row.lower_bound ? (row.peak / row.lower_bound).toFixed(6) : "–"],
    ["optimal", "", row => row.optimal ? "proved" : ""],
    ["nodes", "number", row => row.nodes ? whole(row.nodes) : ""],
    ["seconds", "number", row => row.seconds.toFixed(3)],
  ], plan.rows);
}
