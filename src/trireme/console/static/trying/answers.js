// Outputs as people look at them: text, tables, bars, images with boxes and masks, sounds.
import {h, mediaNode, note, opened} from "../parts/dom.js";
import {asText, mediaType, parseJson, sizeOf, wave, writeJson} from "../parts/tensors.js";
import {isPicture, overlay, picture} from "./pictures.js";

const MOST_ROWS = 50;
const MOST_COLUMNS = 24;
const MOST_TEXTS = 200;
const MOST_BARS = 20;
const MOST_LETTERS = 100000;

export function showOutputs(outputs, context) {
	const named = Object.fromEntries(outputs.map((output) => [output.name, output]));
	const nodes = [];
	const used = new Set();
	const flat = outputs.filter(({shape}) => shape.length >= 2);
	const box = flat.find(({name, shape}) => shape.at(-1) === 4 && /box/i.test(name));
	const mask = flat.find(({name}) => /mask/i.test(name));
	if (context.image && (box || mask)) {
		nodes.push(panel("On the image", overlay(context.image, box, mask, named)));
		if (mask) used.add(mask.name);
	}
	const [names, scores] = ["label", "score"].map((name) => (named[name] ? [...named[name].values] : []));
	if (names.length && names.length === scores.length) {
		nodes.push(panel("label and score", bars(names.map(asText), scores.map(Number))));
		used.add("label").add("score");
	}
	for (const output of outputs)
		if (!used.has(output.name)) nodes.push(panel(output.name, view(output, context, named), output));
	return nodes;
}

function panel(title, node, output) {
	const kind = output && h("span.quiet", ` ${output.datatype} [${output.shape.join(", ")}]`);
	const head = h("h3", h("span.mono", title), kind);
	return h("section.output", {data: {output: title}}, head, node);
}

function view(output, context, named) {
	const {values, shape, datatype, name, isCut} = output;
	if (datatype === "BYTES") return texts(values, isCut);
	if (isCut) return grid(values, shape);
	const inner = shape.length > 1 && shape[0] === 1 ? shape.slice(1) : shape;
	const labels = context.labels?.[name];
	if (inner.length === 1 && inner[0] > 1 && (labels || (/score|prob|logit|class/i.test(name) && inner[0] <= 5000))) {
		const scores = Array.from(values, Number);
		const names = scores.map((_, at) => labels?.[at] ?? String(at));
		return bars(names, scores);
	}
	if (inner.length === 1 && inner[0] >= 1000 && /audio|sound|wave|speech/i.test(name)) {
		const rate = named.sampling_rate ? Number(named.sampling_rate.values[0]) : 16000;
		const [, sign, bits] = /^(U?)INT(\d+)/.exec(datatype) || [];
		const half = bits ? 2 ** (bits - 1) : 1; // the loudest
		const samples = Float32Array.from(values, (value) => (Number(value) - (sign ? half : 0)) / half);
		const sound = mediaNode(wave(samples, rate), "audio/wav");
		return h("div", sound, note(`${inner[0]} samples at ${rate} Hz`));
	}
	const ways = [["As numbers", () => grid(values, shape)], ["As an image", () => picture(values, inner, datatype)]];
	if (!isPicture(inner, datatype)) return ways[0][1]();
	if (datatype === "UINT8" || inner[0] === 3 || inner[2] > 1) ways.reverse();
	const [[, first], [title, second]] = ways;
	return h("div.stack", first(), opened("details", h("summary", title), second));
}

function texts(values, isCut) {
	const nodes = [...values].slice(0, MOST_TEXTS).map((value) => {
		const type = mediaType(value);
		if (type) return isCut ? note(type) : mediaNode(value, type);
		const text = pretty(asText(value));
		if (text.length <= MOST_LETTERS) return h("pre.code", text);
		const [head, rest] = [text.slice(0, MOST_LETTERS), text.slice(MOST_LETTERS)].map((part) => h("pre.code", part));
		const title = h("summary", `${text.length - MOST_LETTERS} more letters`);
		return h("div", head, opened("details", title, () => rest));
	});
	if (values.length > MOST_TEXTS) nodes.push(note(`and ${values.length - MOST_TEXTS} more`));
	return h("div.stack", nodes.length ? nodes : note("empty"));
}

// A text with numbers that the language would round stays as it is.
function pretty(text) {
	if (!/^\s*[[{]/.test(text)) return text;
	try {
		const value = JSON.parse(text);
		return JSON.stringify(value) === writeJson(parseJson(text)) ? JSON.stringify(value, null, 2) : text;
	} catch {
		return text;
	}
}

export function bars(names, values) {
	const pairs = values.map((value, at) => [value < Infinity ? value : Infinity, value, names[at]]);
	pairs.sort(([left], [right]) => right - left); // NaN first
	const finite = values.filter(Number.isFinite);
	const low = finite.reduce((least, value) => Math.min(least, value), 0); // where the bars begin
	const most = finite.reduce((reached, value) => Math.max(reached, value - low), 1e-12);
	const line = ([, value, name]) => {
		const bar = h("div");
		bar.style.width = `${(100 * (value - low)) / most}%`;
		return [h("span", name), h("div.lane", bar), h("span.n", number(value))];
	};
	const left = values.length - MOST_BARS;
	return h("div.bars", pairs.slice(0, MOST_BARS).map(line), left > 0 && h("span.quiet", `and ${left} more`));
}

function number(value) {
	if (!Number.isFinite(value) || Number.isInteger(value)) return String(value);
	const whole = Math.ceil(Math.log10(Math.abs(value) + 1));
	return String(Number(value.toPrecision(Math.max(5, whole))));
}

function grid(values, shape) {
	const columns = shape.length > 1 ? shape.at(-1) : Math.min(values.length, 12);
	const rows = columns ? Math.ceil(values.length / columns) : 0;
	const shown = Math.min(rows, MOST_ROWS);
	const wide = Math.min(columns, MOST_COLUMNS);
	const cell = (value) => h("td.n", value === undefined ? "" : number(value));
	const cells = (from) => Array.from({length: wide}, (_, at) => cell(values[from + at]));
	const lines = Array.from({length: shown}, (_, row) => h("tr", cells(row * columns)));
	const words = `${sizeOf(shape)} values, of which ${shown * wide} are shown`;
	const more = (rows > shown || columns > wide) && note(words);
	return h("div.scroll", h("table.numbers", h("tbody", lines)), more);
}
