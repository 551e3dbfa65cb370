// Slow and failed requests of the last minutes, with waterfalls and, if recorded, contents.
import {
	button, bytes, clock, count, failed, h, joined, modelLink, note, opened, releaseMedia, replace, time,
} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {decode, unpacked} from "../parts/tensors.js";
import {waterfall} from "../parts/waterfall.js";
import {showOutputs} from "../trying/answers.js";

const MOST_TIMES = 20;
const RESPONSES = ["No response", "Response"];
const NOT_RECORDING = "What was in a request is shown while requests are recorded.";
const RECORDING = "Requests are being recorded: what was in one is shown until the recording ends.";

const REASONS = {
	REFUSED: "Refused",
	REJECTED: "Rejected",
	CANCELED: "Cancelled",
	BACKEND: "Failed in the model",
	OTHER: "Failed",
};

export const requestsView = (main) =>
	follow(main, "/console/api/requests", (again) => h("div.spread", h("h1", "Requests"), button("Refresh", again)));

export const modelRequestsView = (body, {name}) =>
	follow(body, `/console/api/requests/${encodeURIComponent(name)}`, (again) =>
		h("div.row.end", button("Refresh", again, {class: "small"})),
	);

async function follow(body, address, head) {
	const list = h("div");
	const load = async () => {
		const found = await get(address);
		releaseMedia(list);
		replace(list, requestTable(found));
	};
	replace(body, head(load), list);
	await load();
	return () => releaseMedia(list);
}

function requestTable(found) {
	const {minutes, slowest, failed} = found;
	const which = `The five slowest of each minute and model of the last ${minutes} minutes, and the last failures.`;
	const said = [which, found.is_recording ? RECORDING : NOT_RECORDING];
	const groups = slowest.map((entry) => [entry]);
	return h(
		"div.stack",
		note(joined(said, " ")),
		list("Failed", alike(failed, found), "No request has failed.", true),
		list("Slowest", groups, "No request was answered.", false),
	);
}

function list(title, groups, empty, isFailed) {
	const line = (group) => opened("details.entry", summary(group, isFailed), () => inner(group));
	const lines = groups.map(line);
	return h("section.stack", h("h2", title), lines.length ? h("div.sheet", lines) : note(empty));
}

function alike(entries, found) {
	const groups = new Map();
	for (const entry of entries) {
		const key = JSON.stringify([entry.model, entry.reason, entry.message]);
		groups.set(key, [...(groups.get(key) || []), entry]);
	}
	for (const group of groups.values()) {
		const {model, reason} = group[0];
		const isRefused = reason === "REFUSED";
		const listed = entries.filter((one) => one.model === model && (one.reason === "REFUSED") === isRefused).length;
		const all = (isRefused ? found.refused_counts : found.failed_counts)[model];
		if (all > listed) Object.assign(group, {listed, all});
	}
	return [...groups.values()];
}

function often({length, listed, all}) {
	if (!all) return length > 1 ? `× ${length}` : "";
	const last = length === listed ? "the last" : `${length} of the last`;
	return `${last} ${listed} of ${count(all)}`;
}

function summary(group, isFailed) {
	const [entry] = group;
	const kind = entry.reason === "CANCELED" ? "off" : "bad";
	return h(
		"summary.row",
		h("span.quiet", clock(entry.time_s)),
		entry.total_us > 0 && h("b", time(entry.total_us)),
		h("span.name", entry.model || "no model named"),
		entry.version && h("span.quiet", `version ${entry.version}`),
		entry.id && h("span.mono.quiet", entry.id),
		often(group) && h("b", often(group)),
		entry.batch > 1 && h("span.quiet", `${count(entry.batch)} rows`),
		isFailed && h(`span.state.${kind}`, REASONS[entry.reason] || entry.reason),
		isFailed && entry.message && h("span.said", entry.message.split("\n")[0]),
	);
}

function inner(group) {
	const [entry] = group;
	const times = group.slice(0, MOST_TIMES).map((one) => clock(one.time_s));
	return h(
		"div.stack.inner",
		entry.message && h("pre.code", entry.message),
		times.length > 1 && note(`At ${times.join(", ")}`),
		entry.total_us > 0 && waterfall(entry.waterfall),
		entry.content > 0 && contentNode(entry.content),
		entry.model && h("p", h("a", {href: modelLink(entry.model, entry.version)}, "To the model")),
	);
}

function contentNode(number) {
	const place = h("div.stack", note("What was in it …"));
	get(`/console/api/contents/${number}`).then(
		(content) => replace(place, sides(content)),
		(error) => replace(place, failed(error)),
	);
	return place;
}

function sides({inputs, parameters, note: leftOut, responses, response_count: count}) {
	const settings = Object.keys(parameters).length > 0 && h("pre.code", JSON.stringify(parameters, null, 2));
	const left = count - responses.length;
	const title = h("h3", RESPONSES[count] || `${count} responses`);
	return h(
		"div.two.content",
		h("section", h("h3", "Request"), leftOut && note(leftOut), tensors(inputs), settings),
		h("section", title, responses.map(tensors), left > 0 && note(`and ${left} more`)),
	);
}

const tensors = (list) => list.map((tensor) => (isWhole(tensor) ? whole(tensor) : begin(tensor)));
const isWhole = (tensor) => tensor.size_bytes === unpacked(tensor.data).length;

function whole(tensor) {
	return showOutputs([{...tensor, values: decode(tensor.datatype, unpacked(tensor.data).buffer)}], {});
}

function begin(tensor) {
	const {name, datatype, shape, size_bytes: size, data} = tensor;
	const words = `${name} ${datatype} [${shape.join(", ")}], ${bytes(size)}`;
	const values = decode(datatype, unpacked(data).buffer);
	if (!values.length) return note(words);
	const cut = {name, datatype, shape: [values.length], values, isCut: true};
	return h("div", note(`${words}, of which this is the beginning:`), showOutputs([cut], {}));
}
