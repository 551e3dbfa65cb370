// A model's last hour as charts, the life of its workers, its steps, its inputs and outputs.
import {
	card, every, h, joined, known, note, problemOf, replace, table,
	clock, count, mebibytes, rate, share, span, time,
} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {Chart} from "../parts/charts.js";
import {ensembleGraph} from "../parts/graph.js";
import {shapeText} from "../parts/tensors.js";

const MOST_EVENTS = 20;
const tenths = known((value) => value.toFixed(1));
const cores = known((value) => String(Number(value.toFixed(3))));

const CHARTS = [
	[
		{title: "Throughput, requests per second", format: rate, least: 1},
		["Answered", "requests_per_s", 1],
		["Failed", "failures_per_s", 6],
	],
	[
		{title: "Mean time of an answer by phase", format: time, isStacked: true},
		["Queue", "engine_queue_us", 2],
		["Prefill", "prefill_us", 4],
		["Decode", "decode_us", 1],
	],
	[{title: "Time to the first token", format: time}, ["Mean", "first_token_us", 1]],
	[{title: "Tokens per second, of answers that ended", format: rate, least: 1}, ["Written", "tokens_per_s", 1]],
	[
		{title: "Mean latency by phase", format: time, isStacked: true, isOfExecutions: true},
		["Queue", "queue_us", 2],
		["Input", "input_us", 4],
		["Model", "infer_us", 1],
		["Output", "output_us", 3],
		["Rest", "other_us", 5],
	],
	[{title: "Latency, median and 99th percentile", format: time}, ["p50", "p50_us", 1], ["p99", "p99_us", 2]],
	[{title: "Rows per execution", format: tenths, least: 2, isOfExecutions: true}, ["Mean", "batch_size", 1]],
	[{title: "Requests in the queue", format: count, least: 4}, ["Waiting", "pending", 1]],
	[{title: "Processor of its workers, cores", format: cores, least: 0.1}, ["Cores", "cpu", 1]],
	[{title: "Memory of its workers", format: mebibytes}, ["Resident", "memory_mib", 1]],
];
const WORKER_WORDS = {
	restarted: "Started again",
	exited: "Ended by itself",
	killed: "Was killed",
	out_of_memory: "Ran out of memory",
	misbehaved: "Sent what is no use and was ended",
	not_started: "Could not be started",
};

const NOT_YET = "Charts appear here when the model has been loaded for some seconds.";
const FAILED = "The model failed to load, so there are no charts of it. Why stands above.";

export async function overviewView(body, {address, detail}) {
	const charts = CHARTS.map(([options, ...series]) => [new Chart(options), series, options.isOfExecutions]);
	const busy = (label) => new Chart({title: `${label}, share of time busy`, format: share, least: 1});
	const devices = Object.keys(detail.devices || {}).map((label) => [busy(label), label]);
	const all = [...charts, ...devices].map(([one]) => one);
	const events = h("div");
	const empty = note();
	const graph = h("div.graph");
	const isEnsemble = detail.serving?.is_ensemble;
	const nodes = all.map((one) => one.node);
	const steps = isEnsemble && card("Steps", graph);
	replace(body, h("div.stack", steps, h("div.cards", nodes), empty, events, about(detail)));
	const draw = (found) => {
		empty.hidden = drawCharts(charts, devices, found);
		empty.textContent = found.state === "UNAVAILABLE" && problemOf(found) ? FAILED : NOT_YET;
		replace(events, workers(found.events));
		if (isEnsemble && found.serving) replace(graph, ensembleGraph(found.serving));
	};
	draw(detail);
	const rest = every(10000, () => get(address).then(draw));
	return () => {
		rest();
		for (const one of all) one.stop();
	};
}

function drawCharts(charts, devices, detail) {
	const {times = [], ...columns} = detail.history;
	const nothing = times.map(() => null);
	const events = detail.events
		.filter(({reason}) => reason !== "restarted")
		.map(({time_s: at, instance, reason}) => ({time_s: at, text: `${instance}: ${reason}`}));
	for (const [one, series, isOfExecutions] of charts) {
		const lines = series.map(([name, key, color]) => ({name, values: columns[key] || nothing, color}));
		one.set({times, series: lines, events, eventName: "a worker failed"});
		const isOfWorkers = series.some(([, key]) => key === "cpu" || key === "memory_mib");
		const isKnown = lines.some(({values}) => values.some((value) => (isOfWorkers ? value : value !== null)));
		one.node.hidden = !isKnown || (isOfExecutions && columns.prefill_us !== undefined);
	}
	for (const [one, label] of devices) {
		const values = detail.devices?.[label]?.utilization || nothing;
		one.set({times, series: [{name: "Busy", values, color: 1}]});
	}
	return charts.some(([one]) => !one.node.hidden);
}

function workers(events) {
	if (!events.length) return null;
	const line = ({time_s: at, instance, reason, text}) => {
		const look = {class: reason !== "restarted" && "some-bad"};
		return [clock(at), instance, h("span", look, WORKER_WORDS[reason] || reason), text];
	};
	const lines = events.slice(-MOST_EVENTS).reverse().map(line);
	return card("Workers", table("Workers", ["Time", "Instance", "What happened", "How"], lines));
}

function about({serving, folder}) {
	if (!serving) return null;
	const tensor = (entry) => [
		h("span.mono", entry.name, entry.optional && h("span.quiet", " optional")),
		h("span.whole", entry.datatype),
		h("span.mono", shapeText(entry, serving)),
	];
	const tensors = (title, list) => table(title, [title, "Type", "Shape"], list.map(tensor));
	const took = serving.load_seconds < 60 ? time(1e6 * serving.load_seconds) : span(serving.load_seconds);
	const facts = [
		`Backend ${serving.backend}`,
		serving.is_decoupled && "streams its responses",
		serving.is_sequence && "sequences",
		serving.max_batch_size && `batches of up to ${serving.max_batch_size}`,
		`loaded at ${clock(serving.loaded_s)} in ${took}`,
		folder,
	];
	const both = h("div.two", tensors("Input", serving.inputs), tensors("Output", serving.outputs));
	return card("About", note(joined(facts)), both);
}
