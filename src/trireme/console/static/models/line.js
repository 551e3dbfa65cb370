// One line of the table of models. Only cells whose text has changed are touched.
import {badge, bytes, count, h, joined, modelLink, problemOf, rate, replace, stateOf, time} from "../parts/dom.js";
import {sparkline} from "../parts/charts.js";
import {rows} from "../parts/live.js";

const NEAR = 600; // pixels beyond the window
const USUAL_HEIGHT = 46;

const instances = (all, {up}) => {
	if (!all) return all === undefined ? "" : "–";
	return up === all ? String(all) : `${up} of ${all}`;
};
const some = (format, none = "–") => (value) => (value ? format(value) : none);
const zero = (value) => (value ? "" : "quiet");
const errorLook = (value, row) => (row.eps > 0 ? "some-bad" : zero(value));

export const COLUMNS = [
	{id: "name", label: "Model", sort: (row) => row.name.toLowerCase()},
	{id: "state", label: "State", sort: (row) => stateOf(row)[1]},
	{id: "instances", label: "Instances", n: true, kind: "fine", show: instances},
	{id: "device", label: "Device", kind: "fine", show: some(String, ""), sort: (row) => row.device || ""},
	{id: "memory", label: "Memory", n: true, kind: "fine", show: some(bytes, "")},
	{id: "rps", label: "Requests/s", n: true, show: rate, look: zero},
	{id: "spark", label: "10 min", kind: "wide", sort: null},
	{id: "p50", label: "p50", n: true, show: some(time)},
	{id: "p99", label: "p99", n: true, show: some(time)},
	{id: "queue", label: "Queue", n: true, show: count, look: zero},
	{id: "batch", label: "Batch", n: true, kind: "fine", show: some((rows) => rows.toFixed(1))},
	{id: "errors", label: "Errors", n: true, show: count, look: errorLook},
	{id: "total", label: "Requests", n: true, kind: "widest", show: count},
];

export const classes = (column, look) => joined([column.n && "n", column.kind, look], " ");

class Line {
	constructor(row) {
		this.row = row;
		this.spark = sparkline();
		this.words = h("div.sub");
		this.shown = new Map();
		this.cells = new Map(COLUMNS.map((column) => [column.id, this.#cell(column)]));
		this.node = h("tr", {role: "row"}, [...this.cells.values()]);
	}

	#cell(column) {
		const {name, version} = this.row;
		const props = {role: "cell", class: classes(column)};
		if (column.id === "spark") return h("td", props, this.spark.svg);
		if (column.id !== "name") return h("td", {...props, data: {label: column.label}});
		const link = h("a.name", {href: modelLink(name, version)}, name);
		return h("th.head", {role: "rowheader", scope: "row"}, h("div", link, this.words));
	}

	draw(row) {
		this.row = row;
		this.stepAt = row.stepAt; // when its small chart went on
		const isServing = row.rps !== undefined;
		if (this.#isNew("state", `${row.state} ${row.reason}`)) this.#tell(row);
		for (const column of COLUMNS.filter(({show}) => show)) {
			const cell = this.cells.get(column.id);
			const text = isServing ? column.show(row[column.id], row) : "";
			if (this.#isNew(column.id, text)) cell.textContent = text;
			const look = classes(column, column.look?.(row[column.id], row));
			if (column.look && this.#isNew(`${column.id} look`, look)) cell.className = look;
		}
		this.spark.draw(isServing ? [...row.spark, row.rps] : []);
	}

	#tell(row) {
		replace(this.cells.get("state"), badge(row));
		const reason = problemOf(row) && h("span.some-bad", ` · ${row.reason}`);
		replace(this.words, joined([row.version && `version ${row.version}`, row.backend]), reason);
	}

	#isNew(key, value) {
		if (this.shown.get(key) === value) return false;
		this.shown.set(key, value);
		return true;
	}
}

// Those of a long table that can be seen, or nearly. All are equally high.
export class VisibleLines {
	constructor(body) {
		this.body = body;
		this.order = []; // the ids of all rows
		this.lines = new Map(); // those that are there
		this.frame = 0;
		this.move = () => {
			this.frame ||= requestAnimationFrame(() => {
				this.frame = 0;
				this.#place();
			});
		};
		this.ending = new AbortController();
		const {signal} = this.ending;
		window.addEventListener("scroll", this.move, {passive: true, signal});
		this.sizes = new ResizeObserver(this.move); // also tells that the table has come onto the page
		this.sizes.observe(body);
		window.addEventListener("resize", this.move, {signal});
	}

	stop() {
		this.ending.abort();
		this.sizes.disconnect();
		cancelAnimationFrame(this.frame);
	}

	set(order) {
		this.order = order;
		this.#place();
		this.draw();
	}

	draw() {
		for (const [id, line] of this.lines) {
			const row = rows.get(id);
			if (row !== line.row || row.stepAt !== line.stepAt) line.draw(row);
		}
	}

	#place() {
		const {body, order} = this;
		const height = (body.firstChild && body.firstChild.offsetHeight) || USUAL_HEIGHT;
		const above = -body.getBoundingClientRect().top;
		const most = Math.ceil((window.innerHeight + 2 * NEAR) / height);
		const from = Math.max(0, Math.min(order.length - most, Math.floor((above - NEAR) / height)));
		const wanted = order.slice(from, from + most);
		body.style.paddingTop = `${from * height}px`;
		body.style.paddingBottom = `${(order.length - from - wanted.length) * height}px`;
		this.#fill(wanted, from);
	}

	#fill(wanted, from) {
		const {body, lines} = this;
		const isWanted = new Set(wanted);
		for (const [id, line] of lines) {
			const row = rows.get(id);
			if (isWanted.has(id) && row.backend === line.row.backend) continue;
			line.node.remove();
			lines.delete(id);
		}
		let next = body.firstChild;
		wanted.forEach((id, at) => {
			const line = lines.get(id) || this.#create(id);
			const index = String(from + at + 2);
			if (line.node.getAttribute("aria-rowindex") !== index) line.node.setAttribute("aria-rowindex", index);
			if (line.node === next) next = next.nextSibling;
			else body.insertBefore(line.node, next);
		});
	}

	#create(id) {
		const line = new Line(rows.get(id));
		line.draw(line.row);
		this.lines.set(id, line);
		return line;
	}
}
