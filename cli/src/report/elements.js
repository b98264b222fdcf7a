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
