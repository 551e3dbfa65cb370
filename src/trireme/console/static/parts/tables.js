// Plain tables, which can be scrolled sideways by keyboard too; from one column on cells are numbers.
import {h} from "./dom.js";

export function table(label, heads, lines, numbersFrom = heads.length) {
	const kind = (at) => at >= numbersFrom && "n";
	const head = heads.map((text, at) => h("th", {scope: "col", class: kind(at)}, text));
	const cell = (content, at) => h("td", {class: kind(at)}, content);
	const body = lines.map((line) => h("tr", line.map(cell)));
	const node = h("table", h("thead", h("tr", head)), h("tbody", body));
	return h("div.scroll", {tabindex: "0", role: "region", label}, node);
}
