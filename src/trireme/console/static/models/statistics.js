// The statistics of a model, as its protocol tells them.
import {count, h, modelPath, replace, time} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {table} from "../parts/tables.js";

export async function statisticsView(body, {name, version}) {
	const {model_stats: list} = await get(`/v2/models/${modelPath(name, version)}/stats`);
	replace(body, h("div.stack", list.map(versionNode)));
}

const mean = (entry) => (entry.count ? time(entry.ns / entry.count / 1000) : "–");
const sheet = (title, heads, lines) => h("div.sheet", table(title, heads, lines, 1));

function versionNode(stats) {
	const {inference_count: inferences, execution_count: executions} = stats;
	const engine = Object.entries(stats.engine_stats || {});
	return h(
		"section.stack",
		h("h2", `Version ${stats.version}: ${count(inferences)} inferences in ${count(executions)} executions`),
		h("div.two", phases(stats.inference_stats), batches(stats.batch_stats)),
		engine.length > 0 && measured(engine),
	);
}

function phases(stats) {
	const line = ([key, entry]) => [key.replace("_", " "), count(entry.count), mean(entry), time(entry.ns / 1000)];
	const lines = Object.entries(stats).map(line);
	return sheet("Phases", ["Phase", "Requests", "Mean", "Altogether"], lines);
}

function batches(stats) {
	if (!stats.length) return null;
	const lines = stats.map(({batch_size: size, compute_input: input, compute_infer: infer, compute_output: output}) => [
		...[String(size), count(infer.count)],
		...[input, infer, output].map(mean),
	]);
	return sheet("Batch sizes", ["Batch size", "Executions", "Input", "Model", "Output"], lines);
}

function measured(stats) {
	const title = "Measured by the model";
	const lines = stats.map(([key, entry]) => [key.replaceAll("_", " "), count(entry.count), mean(entry)]);
	return sheet(title, [title, "Count", "Mean"], lines);
}
