// One request to a model, answered at once or as a stream, shown as it comes.
import {failed, h, modelPath, note, releaseMedia, time} from "../parts/dom.js";
import {events, send} from "../parts/api.js";
import {
	asText, decode, decodeAnswer, encodeRequest, mediaType, outputsOf, parseJson, unpacked, writeJson,
} from "../parts/tensors.js";
import {showOutputs} from "./answers.js";

const MOST_EVENTS = 500;
const MOST_PIECES = 20000;
export const TEXT_EVENTS = "text/event-stream";
export const EVENTS = `${TEXT_EVENTS};binary=base64`; // with what is not for JSON
const since = (began) => time((performance.now() - began) * 1000);

// trial: {detail, context, show, explain}
export async function ask(trial, inputs, parameters, signal) {
	const began = performance.now();
	const found = await post(trial.detail, bodyOf(inputs, parameters), signal);
	const explained = found.headers.get("X-Explain");
	const outputs = await decodeAnswer(found);
	const words = `Answered in ${since(began)}, as this browser sees it.`;
	trial.show(note(words), showOutputs(outputs, trial.context));
	if (explained) trial.explain(JSON.parse(explained));
}

export async function stream(trial, inputs, parameters, signal) {
	const began = performance.now();
	const found = await post(trial.detail, bodyOf(inputs, parameters), signal, EVENTS);
	const counted = note("Waiting for the first response.");
	const list = h("div.stack");
	trial.show(counted, list);
	let number = 0;
	for await (const {event, data, binary = ""} of events(found)) {
		const value = parseJson(data);
		if (event === "explain") {
			trial.explain(value);
			continue;
		}
		const outputs = outputsOf(value, unpacked(binary).buffer);
		if (value.error) append(list, failed({message: value.error}));
		if (!outputs.length) continue;
		number += 1;
		const noun = number === 1 ? "response" : "responses";
		counted.textContent = `${number} ${noun} in ${since(began)}`;
		show(list, outputs, trial.context);
	}
	if (!number) counted.textContent = list.firstChild ? "" : "The model ended without a response.";
}

function show(list, outputs, context) {
	const [{datatype, values}, ...others] = outputs;
	if (!others.length && datatype === "BYTES" && ![...values].some(mediaType)) {
		const last = list.lastChild;
		const text = last?.matches("pre.joined") ? last : h("pre.code.joined");
		if (text !== last) append(list, text);
		text.append([...values].map(asText).join(""));
		if (text.childNodes.length > MOST_PIECES) text.firstChild.remove();
	} else append(list, h("div.event", showOutputs(outputs, context)));
}

function append(list, node) {
	list.append(node);
	while (list.children.length > MOST_EVENTS) {
		releaseMedia(list.firstChild);
		list.firstChild.remove();
	}
}

function post({name, version}, {body, headers}, signal, Accept = "*/*") {
	const options = {method: "POST", body, headers: {...headers, Accept, "X-Explain": "1"}, signal};
	return send(`/v2/models/${modelPath(name, version)}/infer`, options);
}

export function formFields(inputs, parameters, wantsBinary) {
	const fields = inputs.flatMap(({name, datatype, data, file, form}) => {
		if (form) return [{name, file, blob: form}];
		const isRaw = data instanceof Uint8Array;
		if (isRaw && datatype !== "BYTES") data = Array.from(decode(datatype, data.slice().buffer));
		else if (isRaw) return [{name, file: file || name, blob: new Blob([data.slice(4)])}];
		if (datatype === "BYTES") return data.map((value) => ({name, value: String(value)}));
		return [{name, value: writeJson(data.length === 1 ? data[0] : data)}];
	});
	const more = Object.entries({...parameters, ...(wantsBinary && {binary_data_output: true})});
	return [...fields, ...more.map(([name, value]) => ({name, value: String(value)}))];
}

// A form changes where the lines of a text end, and leaves what is in a file as it is.
export const isBroken = (text) => /[\r\n]/.test(text);

function bodyOf(inputs, parameters) {
	if (!inputs.some((input) => input.form)) return encodeRequest(inputs, parameters, true);
	const form = new FormData();
	for (const {name, file, blob, value} of formFields(inputs, parameters, true)) {
		if (blob) form.append(name, blob, file);
		else form.append(name, isBroken(value) ? new Blob([value]) : value);
	}
	return {body: form};
}
