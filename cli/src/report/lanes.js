// Lanes: the queues of a fitted trace, each a row of bars on the time axis. A lane is a view as views.js tells.

/** Bars that follow each other: begin[i] <= end[i] <= begin[i + 1]. */
class Bars {
  constructor(begin, end) { Object.assign(this, { begin, end }); }

  /** The first bar that ends after `moment`. */
  after(moment) {
    let lo = 0, hi = this.end.length;
    while (lo < hi) {
      const middle = (lo + hi) >> 1;
      if (this.end[middle] <= moment) lo = middle + 1; else hi = middle;
    }
    return lo;
  }

  /** The bar at `moment`, or else the nearest one that is no further away than `slack`; -1 if there is none. */
  at(moment, slack) {
    const i = this.after(moment), { begin, end } = this;
    if (i < begin.length && begin[i] <= moment) return i;
    const next = i < begin.length ? begin[i] - moment : Infinity, before = i > 0 ? moment - end[i - 1] : Infinity;
    if (Math.min(next, before) > slack) return -1;
    return next < before ? i : i - 1;
  }

  /** Calls back for each bar in view with its left and right edge in device pixels; bars that would only cover what is
      drawn already are left out, so that the work is bounded by the pixels. */
  draw(pen, time, least, bar) {
    let drawn = -1;
    for (let i = this.after(time.lo); i < this.begin.length && this.begin[i] <= time.hi; i++) {
      const left = Math.round(pen.x(this.begin[i])), right = Math.max(Math.round(pen.x(this.end[i])), left + least);
      if (right <= drawn) continue;
      drawn = right;
      bar(i, left, right);
    }
  }
}

class LaneView {
  /** `bars` is drawn by `color(i)` and `label(i)` and told by `tell(i)`. */
  constructor(plan, time, name, bars, { color, label, tell }) {
    Object.assign(this, { plan, time, name, kind: `lane ${name}`, marks: 0, zooms: false, bars, color, label, tell });
    this.vertical = new Axis(0, 1, 1);
  }

  draw(pen) {
    const { g, h, w, ratio } = pen;
    g.font = pen.font(11);
    g.textAlign = "center";
    g.textBaseline = "middle";
    this.bars.draw(pen, this.time, 1, (i, left, right) => {
      g.fillStyle = this.color(i) ?? pen.color("plain");
      g.fillRect(left, 0, right - left - (right - left > 3 ? 1 : 0), h);
      const from = Math.max(left, 0), to = Math.min(right, w), label = this.label(i);
      if (label.length * 6.4 * ratio > to - from - 6 * ratio) return;
      g.fillStyle = "#10131acc";
      g.fillText(label, (from + to) / 2, h / 2 + ratio);
    });
  }

  tip(moment) {
    const i = this.bars.at(moment, this.slack);
    return i < 0 ? null : this.tell(i);
  }

  /** What a pointer may miss a bar by. */
  get slack() { return 3 * this.time.span / Math.max(this.plot.clientWidth, 1); }

  mark() {}
}

/** Operators, and where compute waits between and within them. */
class ComputeLane extends LaneView {
  constructor(plan, time) {
    const { operators, stalls, copies } = plan.run;
    super(plan, time, "compute", new Bars(operators.begin, operators.end), {
      color: i => plan.groups[plan.operator[i]]?.color,
      label: i => plan.ops[operators.op[i]],
      tell: i => ({
        title: `op ${plan.ops[operators.op[i]]}`, color: plan.groups[plan.operator[i]]?.color,
        facts: [[operators.rerun[i] ? "recomputed" : "runs", interval(operators.begin[i], operators.end[i])]],
      }),
    });
    this.rerun = i => operators.rerun[i];
    this.stalls = new Bars(stalls.begin, stalls.end);
    this.tellStall = i => {
      const copy = stalls.copy[i], facts = [["waits", interval(stalls.begin[i], stalls.end[i])]];
      if (copy === null) return { title: "stall", facts };
      facts.push(["for", `${copies.out[copy] ? "copy out" : "copy in"} of block ${nameOf(plan, copies.residency[copy])}`],
        ["copied", interval(copies.begin[copy], copies.end[copy])]);
      return { title: "stall", facts, block: copies.residency[copy] };
    };
  }

  draw(pen) {
    super.draw(pen);
    // A recomputed operator has the tint of the page over its colour.
    pen.g.fillStyle = "#ffffff90";
    this.bars.draw(pen, this.time, 1, (i, left, right) => {
      if (this.rerun(i)) pen.g.fillRect(left, pen.h / 2, right - left, pen.h / 2);
    });
    pen.g.fillStyle = pen.color("stall");
    this.stalls.draw(pen, this.time, 2, (i, left, right) => pen.g.fillRect(left, 0, right - left, pen.h));
  }

  tip(moment) {
    const stall = this.stalls.at(moment, 0);
    if (stall >= 0) return { ...this.tellStall(stall), color: getComputedStyle(document.documentElement).getPropertyValue("--stall") };
    return super.tip(moment);
  }
}

/** The copies of one link. */
class CopyLane extends LaneView {
  constructor(plan, time, name, out) {
    const { copies } = plan.run, own = copies.out.flatMap((o, i) => o === out ? [i] : []);
    const residency = i => copies.residency[own[i]];
    super(plan, time, name, new Bars(own.map(i => copies.begin[i]), own.map(i => copies.end[i])), {
      color: i => plan.groups[plan.group[residency(i)]].color,
      label: i => nameOf(plan, residency(i)),
      tell: i => ({
        title: `copy ${name} of block ${nameOf(plan, residency(i))}`, color: plan.groups[plan.group[residency(i)]].color, block: residency(i),
        facts: [
          ["bytes", exactBytes(plan.size[residency(i)])],
          ["copied", interval(copies.begin[own[i]], copies.end[own[i]])],
          ["compute", waitOf(plan, own[i])],
        ],
      }),
    });
    this.residency = residency;
  }

  /** Outlines the copies of the block that is pointed out. */
  mark(pen, pointer, block) {
    if (block < 0) return;
    const { g, h, ratio } = pen, first = this.plan.first[block];
    g.strokeStyle = pen.color("ink");
    g.lineWidth = 2 * ratio;
    for (let i = this.bars.after(this.time.lo); i < this.bars.begin.length && this.bars.begin[i] <= this.time.hi; i++) {
      if (this.plan.first[this.residency(i)] !== first) continue;
      const left = Math.round(pen.x(this.bars.begin[i])), right = Math.round(pen.x(this.bars.end[i]));
      g.strokeRect(left - ratio, ratio, Math.max(right - left, 1) + 2 * ratio, h - 2 * ratio);
    }
  }
}

/** Whether compute waits for a copy. */
function waitOf(plan, copy) {
  const waited = plan.run.copies.waited[copy];
  return waited > 0 ? `waits ${duration(waited)} for it` : "hidden: does not wait for it";
}
