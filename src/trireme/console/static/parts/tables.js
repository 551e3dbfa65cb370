// Plain tables: cells are texts, nodes, or nodes with a class of their own; from one column on they are numbers.
import {h} from "./dom.js";

export function table(label, heads, lines, numbersFrom = heads.length) {
  const kind = (at) => (at >= numbersFrom ? "n" : undefined);
  const head = heads.map((text, at) => h("th", {scope: "col", class: kind(at)}, text));
  const cell = (content, at) => h("td", {class: kind(at)}, content);
  const body = lines.map((line) => h("tr", {}, line.map(cell)));
  const node = h("table", {"aria-label": label}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return h("div", {class: "scroll"}, node);
}
