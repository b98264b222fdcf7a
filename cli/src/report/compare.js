// The page of a comparison: a bar for each solver, and for each allocator in use today.

const told = JSON.parse(byId("data").textContent);
const rows = [
  ...told.solvers.map(s => ({ ...s, name: s.solver, kind: "plan", why: s.optimal ? "no plan takes less" : `at least ${bytes(s.lower_bound)}` })),
  ...told.today.map(t => ({ ...t, name: t.allocator, kind: "today", why: `a plan saves ${(t.saved_percent).toFixed(1)} %` })),
];
const least = rows.reduce((a, b) => (b.kind === "plan" && b.peak < a.peak ? b : a));
const most = Math.max(...rows.map(row => row.peak), 1);

byId("figures").append(
  figure("blocks", whole(told.blocks)),
  figure("max load", bytes(told.max_load)),
  figure("best plan", bytes(least.peak), note(least.name)),
  ...told.today.map(t => figure(t.allocator, bytes(t.peak), note(`${((t.ratio - 1) * 100).toFixed(1)} % above the max load`))));

/** A bar of a peak, with the line of the max load. */
function bar(row) {
  const box = element("span", { className: `bar ${row.kind}` }), full = element("i"), line = element("b");
  full.style.width = `${100 * row.peak / most}%`;
  line.style.left = `${100 * told.max_load / most}%`;
  box.append(full, line);
  return box;
}

fillTable(byId("peaks").querySelector("table"), [
  ["", "", row => row.name],
  ["peak", "number", row => bytes(row.peak)],
  ["over max load", "number", row => row.ratio.toFixed(4)],
  ["", "wide", bar],
  ["", "", row => row.why],
  ["seconds", "number", row => row.kind === "plan" ? row.seconds.toFixed(3) : ""],
], rows, row => element("tr", { className: row.kind }));
