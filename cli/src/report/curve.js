// The page of a sweep: overhead against limit, a line for each means or policy.

const curve = JSON.parse(byId("data").textContent);
const percent = (part, digits = 1) => `${(100 * part).toFixed(digits)} %`;
const ofPeak = size => size / Math.max(curve.original_peak, 1);

/** A colour and a mark for each line, in the order of the lines. */
const STYLES = [
  ["#d1383d", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0"],
  ["#3f78d0", "M-3.5-3.5h7v7h-7z"],
  ["#d08a14", "M0-4.5L4.5 3.5h-9z"],
  ["#1d9a8a", "M0 4.5L4.5-3.5h-9z"],
  ["#9259cf", "M0-5L5 0 0 5-5 0z"],
  ["#3d9a4b", "M-5-1.5h3.5V-5h3v3.5H5v3H1.5V5h-3V1.5H-5z"],
  ["#868e99", "M-4.5-2.5h9v5h-9z"],
];
const lines = curve.policies.map((policy, i) => {
  const [color, shape] = STYLES[i % STYLES.length];
  return { policy, color, shape, rule: curve.about[i], points: curve.points.filter(p => p.policy === policy), hidden: false };
});
const limits = [...new Set([...curve.points, ...curve.untried].map(p => p.limit))].sort((a, b) => b - a);
/** Whether the time was up before a line was tried at a limit. */
const untried = (line, limit) => curve.untried.some(u => u.policy === line.policy && u.limit === limit);

// ---- scales ----

const margin = { left: 64, right: 36, top: 16, bottom: 64 };
const right = Math.max(0, Math.floor(20 * ofPeak(Math.min(curve.swap_lower_bound, curve.least_limit)) - .5) / 20);
/** Limits as parts of the peak; the axis is drawn from its high end to its low end. */
const across = new Axis(right, Math.max(1, ...limits.map(ofPeak)) + .01, .01);
/** Where the overhead axis may end, as fractions. */
const tops = [.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 100].filter((top, i, all) => {
  const most = Math.max(...curve.points.map(p => p.overhead), 0);
  return i === 0 || all[i - 1] < most;
});
/** The first policy's points of moderate cost decide what is shown at first: the last limits often cost many times as much. */
let ceiling = (() => {
  const costs = (lines[0]?.points ?? []).map(p => p.overhead).filter(o => o > 0).sort((a, b) => a - b);
  const typical = costs[costs.length >> 1] ?? 0;
  return tops.find(top => top >= 1.8 * typical) ?? tops.at(-1);
})();
let lit = null;

// ---- chart ----

const chart = byId("curve").firstElementChild;
const svg = (tag, attributes = {}, ...children) => {
  const e = document.createElementNS(chart.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
};

function drawChart() {
  const place = byId("curve"), w = place.clientWidth, h = place.clientHeight;
  const inner = { w: w - margin.left - margin.right, h: h - margin.top - margin.bottom };
  const x = limit => margin.left + (1 - across.place(ofPeak(limit))) * inner.w;
  const y = overhead => margin.top + (1 - overhead / ceiling) * inner.h;
  const bottom = margin.top + inner.h, end = margin.left + inner.w;
  chart.setAttribute("viewBox", `0 0 ${w} ${h}`);
  chart.replaceChildren();

  const bound = x(curve.swap_lower_bound);
  chart.append(svg("rect", { class: "beyond", x: bound, y: margin.top, width: Math.max(end - bound, 0), height: inner.h }));
  for (let i = 0; i <= 5; i++) {
    const value = ceiling * i / 5;
    chart.append(svg("path", { class: "grid", d: `M${margin.left} ${y(value)}H${end}` }),
      svg("text", { class: "up", x: margin.left - 8, y: y(value) + 4 }, `${Number((100 * value).toPrecision(3))} %`));
  }
  const mark = inner.w / across.span > 600 ? .1 : .25;
  for (const part of across.marks(mark).map(part => Math.round(100 * part) / 100)) {
    const at = x(part * curve.original_peak);
    chart.append(svg("path", { class: "grid", d: `M${at} ${margin.top}V${bottom}` }),
      svg("text", { class: "along", x: at, y: bottom + 18 }, `${Math.round(100 * part)} %`),
      svg("text", { class: "along", x: at, y: bottom + 34 }, bytes(part * curve.original_peak)));
  }
  chart.append(svg("text", { class: "name", transform: `translate(14 ${margin.top + inner.h / 2}) rotate(-90)` }, "overhead"),
    svg("text", { class: "name", x: margin.left + inner.w / 2, y: bottom + 54 }, "limit, in parts of the original peak and in bytes"));

  // An image of its own cuts off what leaves it.
  const inside = [margin.left, margin.top - 6, inner.w, inner.h + 12];
  const curves = svg("svg", { x: inside[0], y: inside[1], width: inside[2], height: inside[3], viewBox: inside.join(" ") });
  // The first policy lies on top.
  for (const line of lines.filter(line => !line.hidden).reverse()) {
    const faded = lit && lit !== line ? .15 : 1, strong = line === lines[0] || lit === line;
    const at = line.points.map(p => [x(p.limit), y(p.overhead)]);
    const g = svg("g", { class: `policy ${line.policy}`, opacity: faded });
    g.append(svg("polyline", { points: at.join(" "), stroke: line.color, "stroke-width": strong ? 3 : 1.5 }));
    for (const [px, py] of at) {
      g.append(svg("path", { d: line.shape, fill: line.color, transform: `translate(${px} ${py}) scale(${strong ? 1 : .8})` }));
    }
    curves.append(g);
  }
  chart.append(curves);

  chart.append(svg("path", { class: "bound", d: `M${bound} ${margin.top}V${bottom}` }),
    svg("path", { class: "least-limit", d: `M${x(curve.least_limit)} ${margin.top}V${bottom}` }));
  const beside = (at, text, down) => {
    // To the left where there is no room to the right; from the edge where there is none on either side.
    const left = at > end - 250, nowhere = left && at < margin.left + 250;
    const from = nowhere ? margin.left + 6 : at + (left ? -6 : 6);
    return svg("text", { class: "beside", x: from, y: margin.top + down, "text-anchor": left && !nowhere ? "end" : "start" }, text);
  };
  chart.append(beside(bound, `swaps alone, without overhead: at least ${bytes(curve.swap_lower_bound)}`, 14),
    beside(x(curve.least_limit), `least limit that works: ${bytes(curve.least_limit)}`, 34));
  for (const least of curve.least) {
    if (least.overhead > ceiling) continue;
    chart.append(svg("path", { class: "least", d: "M0-6L6 0 0 6-6 0z", transform: `translate(${x(least.footprint)} ${y(least.overhead)})` }));
  }
  const cursor = svg("path", { class: "cursor", d: "" });
  chart.append(cursor);
  chart.onpointermove = event => {
    const at = event.clientX - chart.getBoundingClientRect().left;
    const distance = limit => Math.abs(x(limit) - at);
    const limit = limits.reduce((a, b) => distance(b) < distance(a) ? b : a, limits[0]);
    if (limit === undefined) return;
    cursor.setAttribute("d", `M${x(limit)} ${margin.top}V${bottom}`);
    showTip(tellLimit(limit), event.clientX, event.clientY);
  };
  chart.onpointerleave = () => { cursor.setAttribute("d", ""); showTip(null); };
}

/** What every policy makes of a limit, the cheapest first. */
function tellLimit(limit) {
  const facts = lines.filter(line => !line.hidden).map(line => [line, line.points.find(p => p.limit === limit)])
    .sort(([, a], [, b]) => (a?.overhead ?? Infinity) - (b?.overhead ?? Infinity))
    .map(([line, point]) => [element("span", {}, swatch(line.color), ` ${line.policy}`), point
      ? `${percent(point.overhead, 2)}${point.overhead_lower_bound === null ? "" : `, at least ${percent(point.overhead_lower_bound, 2)}`} · footprint ${bytes(point.footprint)} · ${bytes(point.swapped_bytes)} copied`
      : untried(line, limit) ? "not tried: the time was up" : "does not get there"]);
  return { title: `limit ${bytes(limit)}, ${percent(ofPeak(limit))} of the peak`, facts };
}

const redraw = () => requestAnimationFrame(drawChart);
new ResizeObserver(redraw).observe(byId("curve"));

byId("tops").append(...tops.map(value => element("button", {
  type: "button", ariaPressed: value === ceiling,
  onclick: event => {
    ceiling = value;
    for (const button of byId("tops").children) button.ariaPressed = button === event.target;
    redraw();
  },
}, `${Number((100 * value).toPrecision(3))} %`)));

byId("legend").append(...lines.map((line, i) => {
  const light = on => () => { lit = on ? line : null; redraw(); };
  const sample = svg("svg", { width: 26, height: 12, viewBox: "-13 -6 26 12" },
    svg("path", { d: "M-13 0H13", stroke: line.color, "stroke-width": i ? 1.5 : 3 }), svg("path", { d: line.shape, fill: line.color }));
  const button = element("button", {
    type: "button", title: line.rule, ariaPressed: true,
    onmouseenter: light(true), onmouseleave: light(false), onfocus: light(true), onblur: light(false),
    onclick: () => { line.hidden = !line.hidden; button.ariaPressed = !line.hidden; redraw(); },
  }, sample, element("span", {}, line.policy), note(line.rule));
  return element("li", {}, button);
}));

// ---- figures and table ----

byId("figures").append(
  figure("peak", bytes(curve.original_peak)),
  ...curve.least.map(least => figure(least.within ? `at ${Math.round(100 * least.within)} % overhead` : "without overhead",
    bytes(least.footprint), note(`${percent(ofPeak(least.footprint))} of the peak`))),
  figure("swaps alone, without overhead, at least", bytes(curve.swap_lower_bound), note(percent(ofPeak(curve.swap_lower_bound)))),
  figure("least limit that works", bytes(curve.least_limit), note(percent(ofPeak(curve.least_limit)))),
  figure("device", curve.device));

fillTable(byId("limits").querySelector("table"), [
  ["limit", "number", limit => bytes(limit)],
  ["bytes", "number", limit => whole(limit)],
  ["of the peak", "number", limit => percent(ofPeak(limit))],
  ...lines.map(line => [line.policy, "number", limit => {
    const point = line.points.find(p => p.limit === limit);
    return point ? (100 * point.overhead).toFixed(2) : untried(line, limit) ? "?" : "–";
  }]),
], limits);
