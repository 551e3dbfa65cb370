// The server itself: how full its limits are, its devices, its flags, its log.
import {
	bytes, clock, count, joined, mebibytes, note, rate, share, span,
	card, every, failed, h, replace, search, tick,
} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {Chart} from "../parts/charts.js";

const MOST_LINES = 1000;

export async function serverView(main) {
	const charts = [
		new Chart({title: "Processor of the machine", format: share, least: 1}),
		new Chart({title: "Memory of the machine in use", format: mebibytes}),
		new Chart({title: "Requests per second, all models", format: rate}),
	];
	const live = h("div.stack");
	const flags = h("section.card");
	const lines = h("div");
	const nodes = charts.map((one) => one.node);
	const log = h("section", h("h2", "Log"), lines);
	replace(main, h("div.stack", h("h1", "Server"), h("div.cards", nodes), live, flags, log));

	async function load() {
		const server = await get("/console/api/server");
		const {times, ...columns} = server.history;
		const line = (name, key, color) => ({name, values: columns[key] || times.map(() => null), color});
		charts[0].set({times, series: [line("CPU", "cpu", 1)]});
		charts[1].set({times, series: [line("Memory", "memory_mib", 1)]});
		charts[2].set({times, series: [line("Answered", "requests_per_s", 1), line("Failed", "failures_per_s", 6)]});
		replace(live, h("div.cards", limits(server.limits), devices(server), versions(server)));
		return server;
	}
	const server = await load();
	showFlags(flags, server.flags);
	const stopLog = await logView(lines, "").catch((error) => void replace(lines, failed(error)));
	const rest = every(10000, load);
	return () => {
		rest();
		stopLog?.();
		for (const one of charts) one.stop();
	};
}

function meter(used, limit, label) {
	const part = limit ? Math.min(1, used / limit) : 0;
	const fill = h("div", {class: part > 0.9 && "high"});
	fill.style.width = `${100 * part}%`;
	return h("div.meter", {role: "meter", label, "aria-valuenow": Math.round(100 * part)}, fill);
}

const entry = (name, figures, more) => h("div", h("div.spread.tight", h("span", name), h("b", figures)), more);

function limits(list) {
	const line = ({name, flag, used, limit, unit}) => {
		const show = unit === "bytes" ? bytes : count;
		const figures = limit === null ? `${show(used)}, no limit` : `${show(used)} of ${show(limit)}`;
		return entry(name, figures, [meter(used, limit, name), h("code.sub", `--${flag}`)]);
	};
	return card("Limits", h("div.stack", list.map(line)));
}

function devices(server) {
	const {cpu, memory, memory_total: total} = server;
	const figures = `${share(cpu)} CPU, ${bytes(memory)} of ${bytes(total)}`;
	const machine = entry("Machine", figures, total && meter(memory, total, "Memory of the machine"));
	const others = server.devices.length ? server.devices.map(device) : note("No accelerators.");
	return card("Devices", h("div.stack", machine, others));
}

function device({label, name, is_simulated: isSimulated, utilization, power_watts: watts, ...memory}) {
	const {memory_used_bytes: used, memory_total_bytes: total} = memory;
	const figures = [
		utilization !== null && share(utilization),
		total && `${bytes(used)} of ${bytes(total)}`,
		watts !== null && `${Math.round(watts)} W`,
	];
	const words = [h("b", label), ` ${name}`, isSimulated && h("span.quiet", " simulated")];
	return entry(words, joined(figures, ", "), total && meter(used || 0, total, `Memory of ${label}`));
}

function versions(server) {
	const up = `Up for ${span(server.uptime_s)}, since ${clock(server.started_s)}.`;
	const cost = `The console has taken ${server.sampler_s.toFixed(2)} s of processor time.`;
	const line = ([name, version]) => h("tr", h("th", {scope: "row"}, name), h("td.n.wrap", version));
	const table = h("table", {label: "Versions"}, h("tbody", server.versions.map(line)));
	return card("Versions", note(`${up} ${cost}`), table);
}

function showFlags(card, flags) {
	const filter = search("Filter flags", () => draw());
	const all = tick({onchange: () => draw()});
	const body = h("tbody");
	const head = (text, at) => h("th", {scope: "col", class: at === 2 && "medium"}, text);
	const heads = ["Flag", "Value", "What it does"].map(head);
	const table = h("table", {label: "Flags in force"}, h("thead", h("tr", heads)), body);
	const choice = h("div.row", filter, h("label", all, " Defaults too"));
	replace(card, h("div.spread", h("h2", "Flags in force"), choice), h("div.scroll", table));
	function draw() {
		const wanted = filter.value.toLowerCase();
		const isShown = (flag) => all.checked || flag.is_given || wanted;
		const isMeant = (flag) => `${flag.flag} ${flag.help}`.toLowerCase().includes(wanted);
		const lines = flags.filter((flag) => isShown(flag) && isMeant(flag)).map(flagLine);
		const empty = wanted ? "No flag fits." : "No flag was given.";
		replace(body, lines.length ? lines : h("tr", h("td", {colspan: 3, class: "quiet"}, empty)));
	}
	draw();
}

function flagLine({flag, value, help, is_given: isGiven}) {
	const mark = isGiven ? null : h("span.mark.default", "default");
	const name = h("td.flag", h("code", `--${flag}`));
	return h("tr", name, h("td.mono", value, mark), h("td.quiet.medium", help));
}

export async function logView(body, model) {
	const path = `/console/api/log${model ? "/" + encodeURIComponent(model) : ""}`;
	const list = h("div.log.card", {role: "log", label: "Log lines", tabindex: "0"});
	const empty = note(model ? "The log says nothing about this model." : "The log is empty.");
	replace(body, list, empty);
	let last = 0;
	const toEnd = () => (list.scrollTop = list.scrollHeight);
	const appeared = new ResizeObserver(() => {
		if (!list.clientHeight) return;
		toEnd();
		appeared.disconnect();
	});

	async function more() {
		const lines = await get(last ? `${path}/after/${last}` : path);
		if (lines.length) last = lines[lines.length - 1].number;
		const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
		list.append(...lines.map(lineNode));
		while (list.children.length > MOST_LINES) list.firstChild.remove();
		empty.hidden = list.children.length > 0;
		list.hidden = !empty.hidden;
		if (isAtEnd) toEnd();
	}
	await more();
	appeared.observe(list);
	const rest = every(2000, more);
	return () => {
		rest();
		appeared.disconnect();
	};
}

function lineNode({level, text, time_s: at}) {
	const look = {class: `${level}${text.startsWith("\n+--") ? " table" : ""}`};
	return h("div", look, `${clock(at)} ${level[0]} ${text}`);
}
