// Inputs that are written: text, JSON, numbers in a grid.
import {h, note, numberField, replace, tick} from "../parts/dom.js";
import {HALVES, batched, parseJson, sizeOf, writeJson} from "../parts/tensors.js";

export const MOST_CELLS = 400;
const FLOATS = {...HALVES, FP32: [23, -126], FP64: [52, -1022]};

export const WRITTEN_WAYS = {text, json, grid};

function text(input, serving) {
	const isMany = sizeOf(input.dims) !== 1;
	const node = h("textarea", {label: input.name, placeholder: isMany ? "One text per line" : "Text"});
	const read = async () => {
		const data = isMany ? node.value.split("\n") : [node.value];
		const dims = input.dims.map((size) => (size === -1 ? data.length : size));
		return {shape: batched(serving, dims), data};
	};
	return {node, read};
}

function json(input, serving) {
	const example = input.datatype === "BYTES" ? '["text"]' : "[[1, 2], [3, 4]]";
	const area = h("textarea", {label: `${input.name} as JSON`, placeholder: example});
	const words = `A list, nested as its shape is${serving.max_batch_size ? ", without the batch." : "."}`;
	const read = async () => {
		const value = parsed(area.value || "[]", input.name);
		const found = [];
		for (let inner = value; Array.isArray(inner); inner = inner[0]) found.push(inner.length);
		const data = Array.isArray(value) ? value.flat(Infinity) : [value];
		return {shape: batched(serving, found.length ? found : [1]), data: data.map((one) => fitting(input, one))};
	};
	return {node: h("div", area, note(words)), read};
}

function parsed(text, name) {
	try {
		return parseJson(text);
	} catch (error) {
		throw new Error(`${name} is not JSON: ${error.message}`);
	}
}

function grid(input, serving) {
	const sizes = input.dims.map((size, at) => (size === -1 ? (at === input.dims.length - 1 ? 4 : 1) : size));
	const node = h("div");
	let cells = [];
	const resize = (at, wanted) => {
		const others = sizeOf(sizes.filter((_, other) => other !== at));
		sizes[at] = Math.max(1, Math.min(Math.floor(MOST_CELLS / others), Math.round(wanted) || 1));
		draw();
	};
	const draw = () => {
		const before = cells.map(valueOf);
		cells = Array.from({length: sizeOf(sizes)}, (_, at) => cellOf(input, at, before[at]));
		const free = input.dims.map((size, at) => size === -1 && sizeField(at, sizes[at], resize));
		const table = h("div.grid-numbers", cells);
		table.style.gridTemplateColumns = `repeat(${sizes.at(-1) || 1}, max-content)`;
		replace(node, h("div.row", free), table);
	};
	draw();
	const values = () => cells.map((cell) => fitting(input, valueOf(cell)));
	return {node, read: async () => ({shape: batched(serving, sizes), data: values()})};
}

export function valueOf({type, checked, value}) {
	if (type === "checkbox") return checked;
	const number = value && Number(value);
	return Number.isSafeInteger(number) || !/^-?\d+$/.test(value) ? number : BigInt(value);
}

function rangeOf(datatype) {
	const [, sign, bits] = /^(U?)INT(\d+)$/.exec(datatype) || [];
	const size = 2n ** BigInt(bits ? bits - !sign : 0);
	if (bits) return {min: sign ? 0n : -size, max: size - 1n, isWhole: true};
	const [digits, least] = FLOATS[datatype];
	const max = (2 - 2 ** -digits) * 2 ** (1 - least);
	return {min: -max, max};
}

export function fitting({name, datatype}, value) {
	if (/BOOL|BYTES/.test(datatype)) return value;
	const {min, max, isWhole} = rangeOf(datatype);
	const isNumber = typeof value === "bigint" || (isWhole ? Number.isInteger(value) : Number.isFinite(value));
	if (!isNumber) throw new Error(`${name}: ${writeJson(value)} is no ${isWhole ? "whole number" : "number"}.`);
	if (value < min || value > max)
		throw new Error(`${name}: ${value} is not between ${min} and ${max}, as ${datatype} is.`);
	return value;
}

function cellOf(input, at, value) {
	const label = {label: `${input.name} value ${at + 1}`};
	if (input.datatype === "BOOL") return tick({checked: value === true, ...label});
	const step = /FP|BF/.test(input.datatype) ? "any" : "1";
	const range = /64/.test(input.datatype) ? null : rangeOf(input.datatype); // browsers compare doubles
	const limits = range && {min: String(range.min), max: String(range.max)};
	return h("input", {type: "number", step, ...limits, value: String(value ?? 0), ...label});
}

function sizeField(at, size, resize) {
	const onchange = (event) => resize(at, Number(event.target.value));
	const limits = {min: 1, max: MOST_CELLS, value: String(size)};
	return h("label", `Size ${at + 1} `, numberField(null, {...limits, onchange}));
}
