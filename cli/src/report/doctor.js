// The page of a diagnosis: who held how much when, what was reserved, and which requests were refused.

const { diagnosis, timeline } = JSON.parse(byId("data").textContent);
const COLORS = ["#3f78d0", "#d08a14", "#1d9a8a", "#9259cf", "#d1383d", "#3d9a4b", "#b05f8a", "#868e99"];
const percent = part => `${(100 * part).toFixed(1)} %`;
const few = text => text.length > 60 ? `…${text.slice(-58)}` : text;

byId("figures").append(
  ...diagnosis.reserved === null ? [] : [figure("reserved, at most", bytes(diagnosis.reserved))],
  figure("in use, at most", bytes(diagnosis.in_use)),
  ...diagnosis.lost === null ? [] : [figure("lost", bytes(diagnosis.lost), note(percent(diagnosis.lost / Math.max(diagnosis.reserved, 1))))],
  figure("by a plan", bytes(diagnosis.plan), note(diagnosis.plan === diagnosis.lower_bound ? "the least possible" : `at least ${bytes(diagnosis.lower_bound)}`)),
  figure("there all the time", bytes(diagnosis.persistent)),
  ...diagnosis.largest_free === null ? [] : [figure("largest free piece", bytes(diagnosis.largest_free))],
  figure("events", whole(diagnosis.events)));

const VERDICTS = {
  fragmented: r => `fragmented: by a plan these blocks and the request take ${bytes(r.plan)} of the ${bytes(r.reserved + r.device_free)} that were there`,
  full: r => `full: by a plan these blocks and the request take ${bytes(r.plan)}, and ${bytes(r.reserved + r.device_free)} were there`,
  unknown: r => r.plan === null ? "" : `by a plan these blocks and the request take ${bytes(r.plan)}; how much there was is not told`,
};
byId("refused").append(...diagnosis.refused.map(r => element("p", { className: "refused" },
  element("strong", {}, `out of memory at event ${whole(r.event)}: ${bytes(r.bytes)} asked`), ` ${VERDICTS[r.verdict](r)}`)));

// ---- chart ----

const chart = byId("held").firstElementChild;
const svg = (tag, attributes = {}, ...children) => {
  const e = document.createElementNS(chart.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
};
const margin = { left: 76, right: 12, top: 12, bottom: 44 };
const sums = timeline?.at.map((_, i) => timeline.bands.reduce((sum, band) => sum + band.bytes[i], 0)) ?? [];
const most = Math.max(...sums, ...timeline?.reserved ?? [], 1);
const count = timeline?.at.length ?? 0;

function drawChart() {
  const place = byId("held"), w = place.clientWidth, h = place.clientHeight;
  const inner = { w: w - margin.left - margin.right, h: h - margin.top - margin.bottom };
  const x = i => margin.left + inner.w * i / count;
  const steps = held => held.flatMap((bytes, i) => [`${x(i)} ${y(bytes)}`, `${x(i + 1)} ${y(bytes)}`]);
  const y = held => margin.top + inner.h * (1 - held / most);
  chart.setAttribute("viewBox", `0 0 ${w} ${h}`);
  chart.replaceChildren();
  const mark = byteMark(most, 5);
  for (let held = 0; held <= most; held += mark) {
    chart.append(svg("path", { class: "grid", d: `M${margin.left} ${y(held)}H${margin.left + inner.w}` }),
      svg("text", { class: "up", x: margin.left - 8, y: y(held) + 4 }, bytes(held, mark)));
  }
  const marks = Math.max(2, Math.min(8, Math.floor(inner.w / 110)));
  for (let k = 0; k <= marks; k++) {
    const i = Math.min(Math.round(k * count / marks), count - 1);
    chart.append(svg("text", { class: "along", x: margin.left + inner.w * k / marks, y: margin.top + inner.h + 18, "text-anchor": k === marks ? "end" : k ? "middle" : "start" }, whole(timeline.at[i])));
  }
  chart.append(svg("text", { class: "name", x: margin.left + inner.w / 2, y: margin.top + inner.h + 38 }, "mallocs and frees"));
  let below = new Array(count).fill(0);
  timeline.bands.forEach((band, b) => {
    const above = below.map((held, i) => held + band.bytes[i]);
    chart.append(svg("path", { class: "band", fill: color(b), d: `M${steps(above).join("L")}L${steps(below).reverse().join("L")}Z` }));
    below = above;
  });
  if (timeline.reserved.length) {
    chart.append(svg("path", { class: "reserved", d: `M${steps(timeline.reserved).join("L")}` }));
  }
  for (const i of timeline.refused) chart.append(svg("path", { class: "out", d: `M${x(i)} ${margin.top}V${margin.top + inner.h}` }));
  const cursor = svg("path", { class: "cursor", d: "" });
  chart.append(cursor);
  chart.onpointermove = chart.onpointerdown = event => {
    const at = event.clientX - chart.getBoundingClientRect().left - margin.left;
    const i = Math.min(Math.max(Math.floor(at / inner.w * count), 0), count - 1);
    cursor.setAttribute("d", `M${x(i + .5)} ${margin.top}V${margin.top + inner.h}`);
    const held = timeline.bands.map((band, b) => [element("span", {}, swatch(color(b)), ` ${few(band.place)}`), bytes(band.bytes[i])]);
    const reserved = timeline.reserved.length ? [["reserved", bytes(timeline.reserved[i])]] : [];
    showTip({ title: `event ${whole(timeline.at[i])}: ${bytes(sums[i])} in use`, facts: [...reserved, ...held.reverse()] }, event.clientX, event.clientY);
  };
  chart.onpointerleave = () => { cursor.setAttribute("d", ""); showTip(null); };
}

const color = band => timeline.bands[band].place === "all others" ? COLORS.at(-1) : COLORS[band];
if (timeline) {
  new ResizeObserver(() => requestAnimationFrame(drawChart)).observe(byId("held"));
  byId("legend").append(...timeline.bands.map((band, b) => element("li", {}, swatch(color(b)), ` ${band.place}`)));
  byId("read").textContent = (timeline.reserved.length ? "The line is what the allocator has reserved; what lies between is lost. " : "") +
    (timeline.refused.length ? "Where a request was refused, there is a red line. " : "") +
    "Of neighbouring events the one with the most bytes is shown.";
} else {
  byId("held").hidden = true;
  byId("read").textContent = "The snapshot shows one moment: no history was recorded, so that nothing is known of the time before.";
}

// ---- tables ----

fillTable(byId("holders").querySelector("table"), [
  ["bytes", "number", h => bytes(h.bytes)],
  ["of the peak", "number", h => percent(h.bytes / Math.max(diagnosis.in_use, 1))],
  ["blocks", "number", h => whole(h.blocks)],
  ["who", "", h => h.frames.length ? element("details", {}, element("summary", {}, h.place),
    element("ol", {}, ...h.frames.map(frame => element("li", {}, frame)))) : h.place],
], diagnosis.holders.slice(0, 200));
if (diagnosis.changes) {
  byId("changes").hidden = false;
  fillTable(byId("changes").querySelector("table"), [
    ["bytes", "number", c => `${c.bytes < 0 ? "−" : "+"}${bytes(Math.abs(c.bytes))}`],
    ["who", "", c => c.place],
  ], diagnosis.changes.slice(0, 200));
}
