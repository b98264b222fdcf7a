// Axes: which part of the data is in view, where its round marks are, and how they read.

class Axis {
  /** An axis over [lo, hi], of which no less than `least` can be in view. */
  constructor(lo, hi, least) {
    this.all = [lo, hi];
    this.least = Math.min(least, hi - lo);
    this.reset();
  }

  reset() { [this.lo, this.hi] = this.all; }

  get span() { return this.hi - this.lo; }

  get zoomed() { return this.span < this.all[1] - this.all[0]; }

  /** Shows [lo, hi], or what is nearest to it without leaving the data. */
  show(lo, hi) {
    const [first, last] = this.all;
    const span = Math.min(Math.max(hi - lo, this.least), last - first);
    this.lo = Math.min(Math.max((lo + hi - span) / 2, first), last - span);
    this.hi = this.lo + span;
  }

  /** Makes what is in view `factor` times as long, and keeps the point `at` (0 to 1) where it is. */
  zoom(factor, at) {
    const span = Math.min(Math.max(this.span * factor, this.least), this.all[1] - this.all[0]);
    const lo = this.lo + (this.span - span) * at;
    this.show(lo, lo + span);
  }

  /** Moves by a part of what is in view. */
  pan(part) {
    this.show(this.lo + this.span * part, this.hi + this.span * part);
  }

  /** Where a value is in view: 0 at the low end, 1 at the high end. */
  place(value) { return (value - this.lo) / this.span; }

  value(place) { return this.lo + this.span * place; }

  /** The multiples of `mark` in view. */
  marks(mark) {
    const marks = [];
    for (let i = Math.ceil(this.lo / mark); i * mark <= this.hi; i++) marks.push(i * mark);
    return marks;
  }
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Bytes for people; `mark` is the distance to the next value that must read differently. */
function bytes(n, mark = 0) {
  let unit = 0;
  while (n >= 1023.5 * 1024 ** unit && unit < UNITS.length - 1) unit++;
  const scale = 1024 ** unit, value = n / scale;
  let digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  if (mark) digits = Math.max(digits, Math.min(10, Math.ceil(Math.log10(scale / mark)) + 1));
  if (unit === 0) digits = 0;
  return `${Number(value.toFixed(digits))} ${UNITS[unit]}`;
}

/** A whole number with its thousands set apart. */
function whole(n) { return n.toLocaleString("en-US"); }

/** Bytes for people, and exactly. */
function exactBytes(n) { return n < 1024 ? `${n} B` : `${bytes(n)} (${whole(n)} B)`; }

/** A time in ns for people; `mark` is the distance to the next value that must read differently. */
function duration(ns, mark = ns / 1000) {
  if (ns === 0) return "0";
  const [unit, scale] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, scale]) => Math.max(mark, ns / 1e4) >= scale / 1e3 && ns >= scale) ?? ["ns", 1];
  return `${Number((ns / scale).toFixed(Math.max(0, Math.ceil(Math.log10(scale / Math.max(mark, 1))))))} ${unit}`;
}

/** From when to when, and how long. */
function interval(begin, end) {
  return `${duration(begin, (end - begin) / 100)} – ${duration(end, (end - begin) / 100)}, ${duration(end - begin)}`;
}

/** A distance between marks, at most `most` of them over `span`: powers of two for bytes … */
function byteMark(span, most) { return Math.max(1, 2 ** Math.ceil(Math.log2(span / most))); }

/** … and 1, 2 or 5 times a power of ten for steps and times. */
function stepMark(span, most) {
  const least = Math.max(1, span / most), ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(m => m * ten).find(mark => mark >= least);
}
