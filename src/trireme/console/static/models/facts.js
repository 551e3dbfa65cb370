// A model's configuration, with what was completed or defaulted marked, and its statistics.
import {count, h, modelPath, note, replace, table, tick, time} from "../parts/dom.js";
import {get} from "../parts/api.js";

const FROM_FILE = "What is not marked stands in the model's own file.";
const NO_FILE = "The model has no configuration file: all of it was completed or is a default.";
const NOT_SERVING = "The model does not serve. This is its own file, which nothing has been added to.";
const NOTHING_WRITTEN = "The model does not serve, and its folder has no configuration file.";

export async function configurationView(body, {address}) {
	const {config, origins, text, is_file_known: isFileKnown} = await get(`${address}/config`);
	if (text !== undefined) {
		replace(body, note(text ? NOT_SERVING : NOTHING_WRITTEN), text && h("pre.code", {tabindex: "0"}, text));
		return;
	}
	const all = tick({id: "defaults", onchange: () => draw()});
	const tree = h("div.config.card.scroll");
	const draw = () => replace(tree, branch(config, origins, all.checked));
	const [completed, byDefault] = [mark("completed"), mark("default")];
	const file = isFileKnown ? FROM_FILE : NO_FILE;
	const words = [file, completed, " was filled in by the server or the backend, ", byDefault, " was set by nobody."];
	replace(body, h("div.spread", note(words), h("label", all, " Show defaults")), tree);
	draw();
}

const mark = (origin) => h(`span.mark.${origin}`, origin);

function branch(value, origin, showsDefaults) {
	const entries = Object.entries(value).filter(([key]) => showsDefaults || !isDefault(origin[key]));
	const line = ([key, item]) => {
		const label = h("span.quiet", `${key}: `);
		if (isBranch(item)) return h("li", label, branch(item, origin[key], showsDefaults));
		return h("li", label, JSON.stringify(item), leafMark(origin[key]));
	};
	return h("ul", entries.map(line));
}

function leafMark(origin) {
	const origins = Array.isArray(origin) ? origin : [origin];
	return origins.length > 0 && !origins.includes("file") && mark(origins[0]);
}

const isObject = (value) => value !== null && typeof value === "object";

const isBranch = (item) => isObject(item) && (!Array.isArray(item) || item.some(isObject));

const isDefault = (origin) =>
	typeof origin === "string" ? origin === "default" : Object.values(origin || {}).every(isDefault);

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
	const lines = stats.map(({batch_size: size, compute_input: input, compute_infer: infer, compute_output: output}) => {
		return [String(size), count(infer.count), ...[input, infer, output].map(mean)];
	});
	return sheet("Batch sizes", ["Batch size", "Executions", "Input", "Model", "Output"], lines);
}

function measured(stats) {
	const title = "Measured by the model";
	const lines = stats.map(([key, entry]) => [key.replaceAll("_", " "), count(entry.count), mean(entry)]);
	return sheet(title, [title, "Count", "Mean"], lines);
}
