// Views: what is drawn above the shared time axis, one below the other.
//
// A view has a `name`, a CSS `kind`, the Axis `vertical` with its most `marks`, and whether the wheel `zooms` it, and
//   draw(pen)                  draws what is in view
//   tip(moment, value)         what to tell about a point: {title, color, block, facts: [[name, text], …]}, or null
//   mark(pen, pointer, block)  draws what follows the pointer ({moment} or null) and the block that is pointed out (or -1).
// A Pen has a canvas context `g` in device pixels, `w`, `h`, the `ratio` of device to CSS pixels, the scales `x(moment)`
// and `y(value)`, and `color(name)` of the style sheet.
//
// A moment is a point of the time axis: a step of the plan or, where a trace is fitted, a nanosecond of its run.

/** Colours blocks and operators in another way: sets the plan's `groups`, the `group` of each block and of each operator. */
function choose(plan, coloring) {
  const { by, groups, group, operator } = coloring;
  Object.assign(plan, { colored_by: by, groups, group, operator });
}

/** Adds to a plan what the views read often: colours, moments for steps, and how the residencies of a block hang together. */
function prepare(plan) {
  choose(plan, plan.colorings[0]);
  const clock = plan.run?.clock, moments = steps => clock ? steps.map(step => clock[step]) : steps;
  plan.span = clock ? [0, Math.max(plan.run.time_ns, 1)] : plan.steps;
  plan.from = moments(plan.start);
  plan.until = moments(plan.end);
  plan.curve = { at: moments(plan.curve_step), load: plan.curve_load };
  plan.before = plan.run && { at: moments(plan.run.before_step), load: plan.run.before_load };
  [plan.peak_at] = moments([plan.peak_step]);
  // A limit far above the peak would leave nothing else to be seen.
  plan.limit = plan.run?.limit <= 1.25 * plan.peak ? plan.run.limit : null;
  plan.top = Math.max(plan.peak, plan.limit ?? 0, 1);
  // Of each residency the first of the same block, which one it is, and the copies that bring it and take it.
  plan.first = plan.id.map((_, i) => i);
  plan.ordinal = plan.id.map(() => 1);
  plan.next.forEach((next, i) => {
    if (next !== null) [plan.first[next], plan.ordinal[next]] = [plan.first[i], plan.ordinal[i] + 1];
  });
  plan.residencies = plan.id.map(() => 0);
  for (const first of plan.first) plan.residencies[first]++;
  plan.arrives = new Map();
  plan.leaves = new Map();
  plan.run?.copies.residency.forEach((residency, i) => (plan.run.copies.out[i] ? plan.leaves : plan.arrives).set(residency, i));
  return plan;
}

/** What the block of a residency is called. */
function nameOf(plan, i) { return plan.id[plan.first[i]]; }

/** A moment for people. */
function when(plan, moment, mark) { return plan.run ? duration(moment, mark) : whole(moment); }

/** Finds the block at a point: the blocks of each of up to 512 equal columns of time are listed together. */
class BlockIndex {
  constructor(plan) {
    const [first, last] = plan.span;
    this.plan = plan;
    this.columns = Math.min(512, last - first);
    this.column = moment => Math.min(this.columns - 1, Math.floor((moment - first) / (last - first) * this.columns));
    const spans = plan.from.map((from, i) => [this.column(from), this.column(plan.until[i] - 1)]);
    this.begin = new Uint32Array(this.columns + 1);
    for (const [a, b] of spans) for (let c = a; c <= b; c++) this.begin[c + 1]++;
    for (let c = 0; c < this.columns; c++) this.begin[c + 1] += this.begin[c];
    this.blocks = new Uint32Array(this.begin[this.columns]);
    const next = this.begin.slice();
    spans.forEach(([a, b], i) => { for (let c = a; c <= b; c++) this.blocks[next[c]++] = i; });
  }

  /** The block that is alive at `moment` and covers `address`, or -1; no two do. */
  at(moment, address) {
    const { from, until, offset, size, span } = this.plan;
    if (moment < span[0] || moment >= span[1]) return -1;
    const c = this.column(moment);
    for (let k = this.begin[c]; k < this.begin[c + 1]; k++) {
      const i = this.blocks[k];
      if (from[i] <= moment && moment < until[i] && offset[i] <= address && address < offset[i] + size[i]) return i;
    }
    return -1;
  }
}

/** Number and name of the op that allocates a block, if one does. */
function opOf(plan, i) { return plan.ops[plan.op[i]]; }

/** What the bits of a block's mark mean. */
const MARKS = [[1, "recomputed"], [2, "mask of a ReLU"], [4, "written over its input, in place"]];

/** How a block was made, where that is not as recorded. */
function madeBy(plan, i) {
  return MARKS.filter(([bit]) => plan.mark[i] & bit).map(([, told]) => told).join(", ");
}

/** What is told about a block. */
function describeBlock(plan, i) {
  const facts = plan.op.length ? [["op", opOf(plan, i) ?? "none: persistent or input"]] : [];
  facts.push(["size", exactBytes(plan.size[i])]);
  if (plan.mark[i]) facts.push(["made", madeBy(plan, i)]);
  const residencies = plan.residencies[plan.first[i]];
  if (residencies > 1) facts.push(["residency", `${plan.ordinal[i]} of ${residencies}`]);
  if (plan.run) facts.push(["on device", interval(plan.from[i], plan.until[i])]);
  for (const [name, copies] of [["copied in", plan.arrives], ["copied out", plan.leaves]]) {
    if (!copies.has(i)) continue;
    const copy = copies.get(i), { begin, end } = plan.run.copies;
    facts.push([name, `${interval(begin[copy], end[copy])}; compute ${waitOf(plan, copy)}`]);
  }
  facts.push(
    ["steps", `[${whole(plan.start[i])}, ${whole(plan.end[i])})`],
    ["offset", exactBytes(plan.offset[i])]);
  return { title: `block ${nameOf(plan, i)}`, color: plan.groups[plan.group[i]].color, facts };
}

/** Peak, max load and limit as lines, the moment of the max load as a dotted one; `named` says which line is which. */
function drawBounds(pen, plan, named) {
  const { g, w, h, ratio } = pen;
  const line = (value, dash, label, above, left = false) => {
    const y = Math.round(pen.y(value)) + .5;
    g.setLineDash(dash.map(d => d * ratio));
    g.beginPath(); g.moveTo(0, y); g.lineTo(w, y); g.stroke();
    g.setLineDash([]);
    if (!named) return;
    const width = g.measureText(label).width, right = left ? 8 * ratio + width : w - 8 * ratio;
    const middle = y + (above ? -11 : 12) * ratio;
    g.fillStyle = pen.color("paper");
    g.globalAlpha = .85;
    g.fillRect(right - width - 4 * ratio, middle - 8 * ratio, width + 8 * ratio, 16 * ratio);
    g.globalAlpha = 1;
    g.fillStyle = pen.color("ink");
    g.fillText(label, right, middle);
  };
  g.lineWidth = ratio;
  g.strokeStyle = pen.color("ink");
  g.font = pen.font(12);
  g.textAlign = "right";
  g.textBaseline = "middle";
  const x = Math.round(pen.x(plan.peak_at)) + .5;
  g.setLineDash([ratio, 3 * ratio]);
  g.beginPath(); g.moveTo(x, 0); g.lineTo(x, h); g.stroke();
  if (plan.peak === plan.max_load) {
    line(plan.peak, [], `peak = max load ${bytes(plan.peak)}`, true);
  } else {
    line(plan.peak, [], `peak ${bytes(plan.peak)}`, true);
    line(plan.max_load, [6, 4], `max load ${bytes(plan.max_load)}`, false);
  }
  if (plan.limit === null) return;
  g.strokeStyle = pen.color("limit");
  g.lineWidth = 2 * ratio;
  line(plan.limit, [], `limit ${bytes(plan.limit)}`, true, true);
}

/** The distance between the marks of the time axis, on `width` CSS pixels. */
function timeMark(time, width) { return stepMark(time.span, Math.max(2, width / 95)); }

function drawGrid(pen, time, vertical, verticalMark) {
  const { g, w, h, ratio } = pen;
  g.fillStyle = pen.color("line");
  for (const moment of time.marks(timeMark(time, w / ratio))) g.fillRect(Math.round(pen.x(moment)), 0, 1, h);
  for (const value of vertical.marks(verticalMark)) g.fillRect(0, Math.round(pen.y(value)), w, 1);
}

class MapView {
  constructor(plan, time) {
    Object.assign(this, { plan, time, name: "address", kind: "map", marks: 9, zooms: true });
    this.vertical = new Axis(0, plan.top * 1.07, 16);
    this.index = new BlockIndex(plan);
    this.recolor();
  }

  /** Sorts the blocks by their colours, after another colouring was chosen. */
  recolor() {
    this.spotlight = -1;
    this.byGroup = this.plan.groups.map(() => []);
    this.plan.group.forEach((group, i) => this.byGroup[group].push(i));
  }

  draw(pen) {
    const { g, w, h, ratio } = pen, { plan } = this;
    const labels = this.fill(pen);
    g.globalCompositeOperation = "destination-over";
    drawGrid(pen, this.time, this.vertical, byteMark(this.vertical.span, this.marks));
    g.globalCompositeOperation = "source-over";
    g.fillStyle = "#10131acc";
    g.font = pen.font(11);
    g.textAlign = "center";
    g.textBaseline = "middle";
    for (const i of labels) {
      const [x0, y0, x1, y1] = this.box(pen, i).map((edge, k) => Math.min(Math.max(edge, 0), k % 2 ? h : w));
      const label = this.label(i);
      if (label.length * 6.4 * ratio < x1 - x0 - 6 * ratio && y1 - y0 > 13 * ratio) {
        if (this.spotlight < 0 || this.spotlight === plan.group[i]) g.fillText(label, (x0 + x1) / 2, (y0 + y1) / 2 + ratio);
      }
    }
    if (plan.id.length) {
      drawBounds(pen, plan, true);
    } else {
      g.fillStyle = pen.color("soft");
      g.font = pen.font(14);
      g.fillText("No blocks: nothing to place.", w / 2, h / 2);
    }
  }

  /** Fills the pixels of the blocks, of which most are tiny where there are many. Returns those with room for a label. */
  fill({ g, w, h, ratio }) {
    const { from, until, offset, size, groups } = this.plan, { time, vertical } = this, labels = [];
    const image = g.createImageData(Math.max(w, 1), Math.max(h, 1)), pixels = new Uint32Array(image.data.buffer);
    const [left, width, low, height] = [time.lo, time.span, vertical.lo, vertical.span];
    const x = moment => Math.round((moment - left) / width * w), y = value => Math.round((1 - (value - low) / height) * h);
    this.byGroup.forEach((blocks, group) => {
      g.fillStyle = groups[group].color;
      // What is read is #rrggbb; a pixel is these bytes and the opacity, the lowest first.
      const [red, green, blue] = [1, 3, 5].map(k => Number.parseInt(g.fillStyle.slice(k, k + 2), 16));
      const opacity = this.spotlight < 0 || this.spotlight === group ? 255 : 33;
      const color = (opacity << 24 | blue << 16 | green << 8 | red) >>> 0;
      for (const i of blocks) {
        const x0 = x(from[i]), x1 = x(until[i]), y0 = y(offset[i] + size[i]), y1 = y(offset[i]);
        if (x1 <= x0 || y1 <= y0 || x1 <= 0 || y1 <= 0 || x0 >= w || y0 >= h) continue;
        // A hair of paper parts neighbours, where they are large enough to spare it.
        const hair = x1 - x0 > 3 && y1 - y0 > 3 ? 1 : 0;
        const begin = Math.max(x0, 0), columns = Math.min(x1 - hair, w) - begin, below = Math.min(y1, h) * w;
        for (let at = Math.max(y0 + hair, 0) * w + begin; at < below; at += w) {
          if (columns > 16) pixels.fill(color, at, at + columns);
          else for (let k = at; k < at + columns; k++) pixels[k] = color;
        }
        if (x1 - x0 > 40 * ratio && y1 - y0 > 15 * ratio) labels.push(i);
      }
    });
    g.putImageData(image, 0, 0);
    return labels;
  }

  /** The edges of a block, rounded to device pixels: blocks that are smaller tile without seams, and the block under
      the middle of a pixel is the one that is drawn there. */
  box(pen, i) {
    const { from, until, offset, size } = this.plan;
    return [pen.x(from[i]), pen.y(offset[i] + size[i]), pen.x(until[i]), pen.y(offset[i])].map(Math.round);
  }

  /** Lines from where each of `residencies` ends to where the next residency of the same block begins. */
  tethers({ g, ratio, w, x, y, color }, residencies) {
    const { next, until, from, offset, size } = this.plan;
    g.beginPath();
    for (const i of residencies) {
      if (next[i] == null) continue;
      const [left, right] = [x(until[i]), x(from[next[i]])];
      if (right < 0 || left > w || right - left < 1) continue;
      g.moveTo(left, y(offset[i] + size[i] / 2));
      g.lineTo(right, y(offset[next[i]] + size[i] / 2));
    }
    g.strokeStyle = color("ink");
    g.lineWidth = 2 * ratio;
    g.setLineDash([4 * ratio, 3 * ratio]);
    g.stroke();
    g.setLineDash([]);
  }

  /** A residency and all others of the same block. */
  chain(i) {
    const chain = [];
    for (let residency = this.plan.first[i]; residency != null; residency = this.plan.next[residency]) chain.push(residency);
    return chain;
  }

  label(i) { return opOf(this.plan, i) ?? this.plan.id[i]; }

  tip(moment, address) {
    const i = this.index.at(moment, address);
    return i < 0 ? null : { block: i, ...describeBlock(this.plan, i) };
  }

  mark(pen, pointer, block) {
    if (block < 0) return;
    const { g, ratio } = pen, chain = this.chain(block);
    this.tethers(pen, chain);
    g.strokeStyle = pen.color("ink");
    for (const i of chain) {
      const [x0, y0, x1, y1] = this.box(pen, i);
      g.lineWidth = (i === block ? 2 : 1) * ratio;
      g.strokeRect(x0 - ratio, y0 - ratio, Math.max(x1 - x0, 1) + 2 * ratio, Math.max(y1 - y0, 1) + 2 * ratio);
    }
  }
}

class LoadView {
  constructor(plan, time) {
    Object.assign(this, { plan, time, name: "load", kind: "load", marks: 3, zooms: false });
    this.vertical = new Axis(0, Math.max(plan.top, plan.run?.original_peak ?? 0) * 1.12, 1);
  }

  /** The part of a load curve that `moment` falls into, or -1 before the first. */
  part({ at }, moment) {
    let lo = 0, hi = at.length;
    while (lo < hi) {
      const middle = (lo + hi) >> 1;
      if (at[middle] <= moment) lo = middle + 1; else hi = middle;
    }
    return lo - 1;
  }

  /** Traces a load curve from the left edge to the right. */
  trace({ g, w, h, ratio, x, y }, curve) {
    g.beginPath();
    g.moveTo(-2 * ratio, h + 2 * ratio);
    let level = h;
    // All parts that begin at the left edge, too: the highest of them may be the max load.
    const last = Math.min(this.part(curve, this.time.hi) + 1, curve.at.length - 1);
    // Of the parts that begin in one column of pixels, from the lowest to the highest, and then the last.
    let column = NaN, edge = -2 * ratio, [low, high] = [h, h];
    const leave = () => { for (const value of [low, high, level]) g.lineTo(edge, value); };
    for (let k = Math.max(this.part(curve, this.time.lo - 1), 0); k <= last; k++) {
      const begin = x(curve.at[k]);
      if (Math.floor(begin) !== column) {
        leave();
        g.lineTo(begin, level);
        [column, edge, low, high] = [Math.floor(begin), begin, level, level];
      }
      level = y(curve.load[k]);
      [low, high] = [Math.max(low, level), Math.min(high, level)];
    }
    leave();
    g.lineTo(w + 2 * ratio, level);
    g.lineTo(w + 2 * ratio, h + 2 * ratio);
  }

  draw(pen) {
    const { g, ratio } = pen, { plan, time } = this;
    drawGrid(pen, time, this.vertical, byteMark(this.vertical.span, this.marks));
    if (!plan.id.length) return;
    this.trace(pen, plan.curve);
    g.fillStyle = pen.color("load-fill");
    g.fill();
    g.strokeStyle = pen.color("load");
    g.lineWidth = ratio;
    g.stroke();
    if (plan.before) {
      this.trace(pen, plan.before);
      g.strokeStyle = pen.color("soft");
      g.stroke();
    }
    drawBounds(pen, plan, false);
  }

  tip(moment) {
    const k = this.part(this.plan.curve, moment);
    if (k < 0) return null;
    const { plan } = this, load = plan.curve.load[k];
    const facts = [["load", exactBytes(load)], ["of the max load", `${(100 * load / plan.max_load).toFixed(1)} %`]];
    if (plan.before) facts.push(["before", exactBytes(plan.before.load[Math.max(this.part(plan.before, moment), 0)])]);
    return { title: plan.run ? when(plan, moment, this.time.span / 1000) : `step ${whole(Math.floor(moment))}`, facts };
  }

  mark(pen, pointer) {
    const k = pointer ? this.part(this.plan.curve, pointer.moment) : -1;
    if (k < 0) return;
    pen.g.fillStyle = pen.color("load");
    pen.g.beginPath();
    pen.g.arc(pen.x(pointer.moment), pen.y(this.plan.curve.load[k]), 3.5 * pen.ratio, 0, 2 * Math.PI);
    pen.g.fill();
  }
}
