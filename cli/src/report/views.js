// Views: what is drawn above the shared time axis, one below the other.
//
// A view has a `name`, a CSS `kind`, the Axis `vertical` and whether the wheel `zooms` it, and
//   draw(pen)                  draws what is in view
//   tip(step, value)           what to tell about a point: {title, color, facts: [[name, text], …]}, or null
//   mark(pen, pointer, block)  draws what follows the pointer ({step} or null) and the block that is pointed out (or -1).
// A Pen has a canvas context `g` in device pixels, `w`, `h`, the `ratio` of device to CSS pixels, the scales `x(step)` and
// `y(value)`, and `color(name)` of the style sheet.

/** Finds the block at a point: the blocks of each of up to 512 equal columns of time are listed together. */
class BlockIndex {
  constructor(plan) {
    const [first, last] = plan.steps;
    this.plan = plan;
    this.columns = Math.min(512, last - first);
    this.column = step => Math.min(this.columns - 1, Math.floor((step - first) / (last - first) * this.columns));
    const spans = plan.start.map((start, i) => [this.column(start), this.column(plan.end[i] - 1)]);
    this.from = new Uint32Array(this.columns + 1);
    for (const [a, b] of spans) for (let c = a; c <= b; c++) this.from[c + 1]++;
    for (let c = 0; c < this.columns; c++) this.from[c + 1] += this.from[c];
    this.blocks = new Uint32Array(this.from[this.columns]);
    const next = this.from.slice();
    spans.forEach(([a, b], i) => { for (let c = a; c <= b; c++) this.blocks[next[c]++] = i; });
  }

  /** The block that is alive at `step` and covers `address`, or -1; no two do. */
  at(step, address) {
    const { start, end, offset, size, steps } = this.plan;
    if (step < steps[0] || step >= steps[1]) return -1;
    const c = this.column(step);
    for (let k = this.from[c]; k < this.from[c + 1]; k++) {
      const i = this.blocks[k];
      if (start[i] <= step && step < end[i] && offset[i] <= address && address < offset[i] + size[i]) return i;
    }
    return -1;
  }
}

/** Number and name of the op that allocates a block, if one does. */
function opOf(plan, i) { return plan.ops[plan.op[i]]; }

/** What is told about a block. */
function describeBlock(plan, i) {
  const facts = plan.op.length ? [["op", opOf(plan, i) ?? "none: persistent or input"]] : [];
  facts.push(
    ["size", exactBytes(plan.size[i])],
    ["steps", `[${whole(plan.start[i])}, ${whole(plan.end[i])})`],
    ["offset", exactBytes(plan.offset[i])]);
  return { title: `block ${plan.id[i]}`, color: plan.groups[plan.group[i]].color, facts };
}

/** Peak and max load as lines, the step of the max load as a dotted one; `named` says which line is which. */
function drawBounds(pen, plan, named) {
  const { g, w, h, ratio } = pen;
  const line = (value, dash, label, above) => {
    const y = Math.round(pen.y(value)) + .5;
    g.setLineDash(dash.map(d => d * ratio));
    g.beginPath(); g.moveTo(0, y); g.lineTo(w, y); g.stroke();
    g.setLineDash([]);
    if (!named) return;
    const right = w - 8 * ratio, middle = y + (above ? -11 : 12) * ratio, width = g.measureText(label).width;
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
  const x = Math.round(pen.x(plan.peak_step)) + .5;
  g.setLineDash([ratio, 3 * ratio]);
  g.beginPath(); g.moveTo(x, 0); g.lineTo(x, h); g.stroke();
  if (plan.optimal) {
    line(plan.peak, [], `peak = max load ${bytes(plan.peak)}`, true);
  } else {
    line(plan.peak, [], `peak ${bytes(plan.peak)}`, true);
    line(plan.max_load, [6, 4], `max load ${bytes(plan.max_load)}`, false);
  }
}

/** The distance between the marks of the time axis, on `width` CSS pixels. */
function timeMark(time, width) { return stepMark(time.span, Math.max(2, width / 95)); }

function drawGrid(pen, time, vertical, verticalMark) {
  const { g, w, h, ratio } = pen;
  g.fillStyle = pen.color("line");
  for (const step of time.marks(timeMark(time, w / ratio))) g.fillRect(Math.round(pen.x(step)), 0, 1, h);
  for (const value of vertical.marks(verticalMark)) g.fillRect(0, Math.round(pen.y(value)), w, 1);
}

class MapView {
  constructor(plan, time) {
    Object.assign(this, { plan, time, name: "address", kind: "map", zooms: true, spotlight: -1 });
    this.vertical = new Axis(0, Math.max(plan.peak, 1) * 1.07, 16);
    this.index = new BlockIndex(plan);
    this.byGroup = plan.groups.map(() => []);
    plan.group.forEach((group, i) => this.byGroup[group].push(i));
  }

  draw(pen) {
    const { g, w, h, ratio } = pen, { plan } = this;
    drawGrid(pen, this.time, this.vertical, byteMark(this.vertical.span, 9));
    const labels = [];
    this.byGroup.forEach((blocks, group) => {
      g.fillStyle = plan.groups[group].color;
      g.globalAlpha = this.spotlight < 0 || this.spotlight === group ? 1 : .13;
      for (const i of blocks) {
        const [x0, y0, x1, y1] = this.box(pen, i);
        if (x1 <= x0 || y1 <= y0 || x1 <= 0 || y1 <= 0 || x0 >= w || y0 >= h) continue;
        // A hair of paper parts neighbours, where they are large enough to spare it.
        const hair = x1 - x0 > 3 && y1 - y0 > 3 ? 1 : 0;
        g.fillRect(x0, y0 + hair, x1 - x0 - hair, y1 - y0 - hair);
        if (x1 - x0 > 40 * ratio && y1 - y0 > 15 * ratio) labels.push(i);
      }
    });
    g.globalAlpha = 1;
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

  /** The edges of a block, rounded to device pixels: blocks that are smaller tile without seams, and the block under
      the middle of a pixel is the one that is drawn there. */
  box(pen, i) {
    const { start, end, offset, size } = this.plan;
    return [pen.x(start[i]), pen.y(offset[i] + size[i]), pen.x(end[i]), pen.y(offset[i])].map(Math.round);
  }

  label(i) { return opOf(this.plan, i) ?? this.plan.id[i]; }

  tip(step, address) {
    const i = this.index.at(step, address);
    return i < 0 ? null : { block: i, ...describeBlock(this.plan, i) };
  }

  mark(pen, pointer, block) {
    if (block < 0) return;
    const { g, ratio } = pen, [x0, y0, x1, y1] = this.box(pen, block);
    g.strokeStyle = pen.color("ink");
    g.lineWidth = 2 * ratio;
    g.strokeRect(x0 - ratio, y0 - ratio, Math.max(x1 - x0, 1) + 2 * ratio, Math.max(y1 - y0, 1) + 2 * ratio);
  }
}

class LoadView {
  constructor(plan, time) {
    Object.assign(this, { plan, time, name: "load", kind: "load", zooms: false });
    this.vertical = new Axis(0, Math.max(plan.peak, 1) * 1.12, 1);
  }

  /** The part of the load curve that `step` falls into, or -1 before the first. */
  part(step) {
    const at = this.plan.curve_step;
    let lo = 0, hi = at.length;
    while (lo < hi) {
      const middle = (lo + hi) >> 1;
      if (at[middle] <= step) lo = middle + 1; else hi = middle;
    }
    return lo - 1;
  }

  draw(pen) {
    const { g, w, h, ratio } = pen, { plan, time } = this;
    drawGrid(pen, time, this.vertical, byteMark(this.vertical.span, 3));
    if (!plan.id.length) return;
    g.beginPath();
    g.moveTo(-2 * ratio, h + 2 * ratio);
    let y = h;
    const last = Math.min(this.part(time.hi) + 1, plan.curve_step.length - 1);
    for (let k = Math.max(this.part(time.lo), 0); k <= last; k++) {
      const x = pen.x(plan.curve_step[k]);
      g.lineTo(x, y);
      y = pen.y(plan.curve_load[k]);
      g.lineTo(x, y);
    }
    g.lineTo(w + 2 * ratio, y);
    g.lineTo(w + 2 * ratio, h + 2 * ratio);
    g.fillStyle = pen.color("load-fill");
    g.fill();
    g.strokeStyle = pen.color("load");
    g.lineWidth = ratio;
    g.stroke();
    drawBounds(pen, plan, false);
  }

  tip(step) {
    const k = this.part(step);
    if (k < 0) return null;
    const load = this.plan.curve_load[k];
    return { title: `step ${whole(Math.floor(step))}`, facts: [
      ["load", exactBytes(load)],
      ["of the max load", `${(100 * load / this.plan.max_load).toFixed(1)} %`]] };
  }

  mark(pen, pointer) {
    const k = pointer ? this.part(pointer.step) : -1;
    if (k < 0) return;
    pen.g.fillStyle = pen.color("load");
    pen.g.beginPath();
    pen.g.arc(pen.x(pointer.step), pen.y(this.plan.curve_load[k]), 3.5 * pen.ratio, 0, 2 * Math.PI);
    pen.g.fill();
  }
}
