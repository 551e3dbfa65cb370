// The table of all models, kept up to date line by line.
import {
	advised, bytes, count, note, rate, stateOf,
	button, choice, h, option, replace, search, setAttribute, setText,
} from "../parts/dom.js";
import {idOf, listen, live, rows} from "../parts/live.js";
import {COLUMNS, VisibleLines, classes} from "./line.js";

const ARRANGE_MS = 5000; // lines that jump are worse than an order that is some seconds old
const kept = {sort: "name", isDown: false, filter: "", state: ""};

export function modelsView(main) {
	const table = new ModelsTable();
	const head = h("div.spread", h("h1", "Models"), h("div.row", table.filter, table.states));
	replace(main, head, table.sums, h("div.sheet.scroll", table.node), table.empty);
	const slash = (event) => {
		if (event.key !== "/" || /^(input|textarea|select)$/i.test(event.target.tagName)) return;
		event.preventDefault();
		table.filter.focus();
	};
	document.addEventListener("keydown", slash);
	const stop = listen((changed) => table.refresh(changed));
	return () => {
		stop();
		table.lines.stop();
		document.removeEventListener("keydown", slash);
	};
}

class ModelsTable {
	constructor() {
		this.arrangedAt = 0;
		this.body = h("tbody", {role: "rowgroup"});
		this.sums = h("div.cards.small");
		this.empty = note();
		const words = {placeholder: "Filter by name, press /", value: kept.filter};
		this.filter = search("Filter models by name", () => this.#choose({filter: this.filter.value}), words);
		this.states = choice("Show models in state", [], () => this.#choose({state: this.states.value}));
		this.heads = new Map(COLUMNS.map((column) => [column.id, this.#head(column)]));
		const head = h("thead", {role: "rowgroup"}, h("tr", {role: "row", "aria-rowindex": 1}, [...this.heads.values()]));
		this.node = h("table.lines", {role: "table", label: "Models"}, head, this.body);
		this.lines = new VisibleLines(this.body);
		this.known = new Set();
	}

	#head(column) {
		const sort = () =>
			this.#choose({sort: column.id, isDown: kept.sort === column.id ? !kept.isDown : Boolean(column.n)});
		const label = column.sort === null ? column.label : button(column.label, sort);
		return h("th", {role: "columnheader", scope: "col", class: classes(column)}, label);
	}

	#choose(choice) {
		Object.assign(kept, choice);
		this.#arrange();
	}

	// `changed`: the ids of rows that differ from before; null where all of them may.
	refresh(changed) {
		if (!live.server) {
			this.#say(advised({message: live.problem, status: 403}), "notice bad");
			return;
		}
		const isSame = changed && rows.size === this.known.size && [...changed].every((id) => this.known.has(id));
		this.#summarize();
		const isDue = Date.now() - this.arrangedAt > ARRANGE_MS && !this.body.contains(document.activeElement);
		if (!isSame || isDue) this.#arrange();
		else this.lines.draw();
	}

	#arrange() {
		this.arrangedAt = Date.now();
		this.known = new Set(rows.keys());
		const wanted = kept.filter.toLowerCase();
		const isWanted = (row) =>
			row.name.toLowerCase().includes(wanted) && (!kept.state || stateOf(row)[1] === kept.state);
		const found = [...rows.values()].filter(isWanted).sort(order());
		for (const [id, head] of this.heads) {
			setAttribute(head, "aria-sort", id === kept.sort && (kept.isDown ? "descending" : "ascending"));
		}
		this.node.setAttribute("aria-rowcount", found.length + 1);
		this.lines.set(found.map(idOf));
		const text = rows.size ? "No model fits the filter." : "The repository holds no models.";
		this.#say(found.length ? "" : text, "quiet");
	}

	#say(text, look) {
		this.empty.className = look;
		setText(this.empty, text);
	}

	#summarize() {
		const all = [...rows.values()];
		const sum = (name) => all.reduce((total, row) => total + (row[name] || 0), 0);
		const ready = all.filter((row) => row.state === "READY" || row.state === "DEGRADED").length;
		const facts = [
			["Serving", `${ready} of ${all.length}`],
			["Requests/s", rate(sum("rps"))],
			["In the queue", count(sum("queue"))],
			["Errors/s", rate(sum("eps"))],
			["Worker memory", bytes(sum("memory"))],
		];
		showFacts(this.sums, facts);
		this.#offerStates([...new Set(all.map((row) => stateOf(row)[1]))].sort());
	}

	#offerStates(states) {
		if (this.offered === states.join()) return;
		this.offered = states.join();
		replace(this.states, [["", "All states"], ...states.map((word) => [word])].map(option));
		if (!states.includes(kept.state)) kept.state = "";
		this.states.value = kept.state;
	}
}

export function showFacts(node, facts) {
	const fact = ([label]) => h("dl.fact", h("dt", label), h("dd"));
	if (node.children.length !== facts.length) replace(node, facts.map(fact));
	facts.forEach(([, text], at) => setText(node.children[at].lastChild, text));
}

function order() {
	const column = COLUMNS.find((one) => one.id === kept.sort);
	const value = column.sort || ((row) => row[column.id] ?? -1);
	const compare = (a, b) => (a > b) - (a < b);
	return (left, right) => {
		const first = compare(value(left), value(right));
		if (first) return kept.isDown ? -first : first;
		return compare(left.name, right.name) || left.version - right.version;
	};
}
