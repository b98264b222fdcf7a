// Elements that the pages have in common: figures, tables, the text beside the pointer.

/** An element with properties and children; texts become text nodes, so that no name is ever read as markup. */
function element(tag, properties = {}, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

const byId = id => document.getElementById(id);
const swatch = color => {
  const e = element("span", { className: "swatch" });
  e.style.background = color;
  return e;
};

/** A figure with its name, for the list at the head. */
const figure = (name, ...value) => element("div", {}, element("dt", {}, name), element("dd", {}, ...value));
/** What stands small below a figure. */
const note = text => element("small", {}, text);

/** Tells something at a point of the window, or nothing more. */
function showTip(tip, x, y) {
  const box = byId("tip");
  box.hidden = !tip;
  if (!tip) return;
  box.replaceChildren(element("strong", {}, ...(tip.color ? [swatch(tip.color)] : []), tip.title),
    element("dl", {}, ...tip.facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])));
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${Math.max(4, x + 16 + w > innerWidth ? x - 16 - w : x + 16)}px`;
  box.style.top = `${Math.max(4, y + 16 + h > innerHeight ? y - 16 - h : y + 16)}px`;
}

/** As `fillTable`, for any number of rows: those in view are made, and a click on the heading of a column that has a fourth
    member, key(row), sorts by it. */
function fillLongTable(scroll, columns, rows, rowOf) {
  const table = scroll.querySelector("table"), height = 26, beyond = 10;
  let sorted = rows, by = null, down = false;
  const space = rows => element("tr", { className: "space" }, Object.assign(element("td"), { style: `height: ${rows * height}px` }));
  const show = () => {
    const first = Math.max(0, Math.floor(scroll.scrollTop / height) - beyond);
    const last = Math.min(sorted.length, first + Math.ceil(scroll.clientHeight / height) + 2 * beyond);
    fillTable(table, columns, sorted.slice(first, last), rowOf);
    const body = table.querySelector("tbody");
    body.prepend(space(first));
    body.append(space(sorted.length - last));
    table.querySelectorAll("th").forEach((heading, c) => {
      const key = columns[c][3];
      if (!key) return;
      heading.replaceChildren(element("button", { type: "button", onclick: () => sort(c) }, columns[c][0]));
      heading.ariaSort = c !== by ? "none" : down ? "descending" : "ascending";
    });
  };
  const sort = c => {
    const key = columns[c][3];
    [by, down] = [c, c === by ? !down : columns[c][1] === "number"];
    const order = (a, b) => { const [x, y] = [key(a), key(b)]; return x < y ? -1 : x > y ? 1 : 0; };
    sorted = [...rows].sort((a, b) => down ? order(b, a) : order(a, b));
    scroll.scrollTop = 0;
    show();
  };
  let asked = false;
  scroll.onscroll = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; show(); });
  };
  scroll.classList.add("long");
  scroll.scrollTop = 0;
  show();
}

/** Columns are [heading, class, value(row)]; `rowOf` makes the row's element. */
function fillTable(table, columns, rows, rowOf = () => element("tr")) {
  table.replaceChildren(
    element("thead", {}, element("tr", {}, ...columns.map(([heading, className]) => element("th", { className }, heading)))),
    element("tbody", {}, ...rows.map(row => {
      const tr = rowOf(row);
      tr.append(...columns.map(([, className, value]) => element("td", { className }, ...[value(row)].flat())));
      return tr;
    })));
}
