// Tensors of the protocol as bytes and as JSON.
const ARRAYS = {
	INT8: Int8Array, INT16: Int16Array, INT32: Int32Array, INT64: BigInt64Array,
	UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array,
	FP32: Float32Array, FP64: Float64Array,
};

// Digits behind the point, and the least power of two.
export const HALVES = {FP16: [10, -14], BF16: [7, -126]};

export const sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);

export const batched = (serving, dims) => (serving.max_batch_size ? [1, ...dims] : dims);

export function shapeText(entry, serving) {
	const dims = serving.max_batch_size ? ["batch", ...entry.dims] : entry.dims;
	return `[${dims.map((size) => (size === -1 ? "any" : size)).join(", ")}]`;
}

// Whole numbers as they are written: those that a double cannot hold are BigInts here.
const exact = (_, value, source) =>
	Number.isInteger(value) && !Number.isSafeInteger(value) && source && /^-?\d+$/.test(source.source)
		? BigInt(source.source)
		: value;

// The server writes NaN and Infinity, which JSON lacks: one becomes a text, the other too large a number.
const lawful = (found) => (found[0] === '"' ? found : found.replace("Infinity", "1e999").replace("NaN", '"NaN"'));

export function parseJson(text) {
	const isLawful = !/NaN|Infinity/.test(text);
	return JSON.parse(isLawful ? text : text.replace(/"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)/g, lawful), exact);
}

export function writeJson(value) {
	if (/^(bigint|number)$/.test(typeof value)) return String(value);
	if (Array.isArray(value)) return `[${value.map(writeJson).join()}]`;
	if (value === null || typeof value !== "object") return JSON.stringify(value);
	const members = Object.entries(value).filter(([, inner]) => inner !== undefined);
	return `{${members.map(([name, inner]) => `${JSON.stringify(name)}:${writeJson(inner)}`).join()}}`;
}

export const asText = (value) => (isBytes(value) ? new TextDecoder().decode(value) : String(value));

export function encodeStrings(items) {
	const out = new Uint8Array(items.reduce((sum, item) => sum + 4 + item.length, 0));
	const view = new DataView(out.buffer);
	let at = 0;
	for (const item of items) {
		view.setUint32(at, item.length, true);
		out.set(item, at + 4);
		at += 4 + item.length;
	}
	return out;
}

// `data` of an input is a plain list, or a Uint8Array of the wire's bytes.
export function encodeRequest(given, parameters, wantsBinary) {
	const inputs = given.map((input) => ({...input, data: wireData(input)}));
	const raw = inputs.map(({data}) => data).filter(isBytes);
	const described = inputs.map(({name, datatype, shape, data}) => ({
		...{name, datatype, shape},
		...(isBytes(data) ? {parameters: {binary_data_size: data.length}} : {data}),
	}));
	const more = wantsBinary ? {...parameters, binary_data_output: true} : parameters;
	const head = {inputs: described, parameters: Object.keys(more).length ? more : undefined};
	const text = new TextEncoder().encode(writeJson(head));
	if (!raw.length) return {body: text, headers: {"Content-Type": "application/json"}};
	return {
		body: new Blob([text, ...raw]),
		headers: {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(text.length)},
	};
}

const isBytes = (data) => data instanceof Uint8Array;

function wireData({datatype, data}) {
	const half = HALVES[datatype];
	return half && Array.isArray(data) ? new Uint8Array(toHalves(data, half).buffer) : data;
}

export async function decodeAnswer(answer) {
	const buffer = await answer.arrayBuffer();
	const at = Number(answer.headers.get("Inference-Header-Content-Length")) || buffer.byteLength;
	return outputsOf(parseJson(new TextDecoder().decode(buffer.slice(0, at))), buffer, at);
}

export const unpacked = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// What is not in the JSON is in `raw`, from `at` on.
export function outputsOf({outputs = []}, raw, at = 0) {
	return outputs.map((output) => {
		const {datatype, data = [], parameters} = output;
		const size = parameters?.binary_data_size;
		const read = (value) => (value === "NaN" && datatype !== "BYTES" ? NaN : value);
		if (size === undefined) return {...output, values: data.flat(Infinity).map(read)};
		return {...output, values: decode(datatype, raw.slice(at, (at += size)))};
	});
}

// The data may end anywhere, in the middle of a number or of a text.
export function decode(datatype, raw) {
	if (datatype === "BYTES") return decodeStrings(new Uint8Array(raw));
	const half = HALVES[datatype];
	if (datatype === "BOOL") return Array.from(new Uint8Array(raw), Boolean);
	const kind = half ? Uint16Array : ARRAYS[datatype] || Uint8Array;
	const values = new kind(raw, 0, Math.floor(raw.byteLength / kind.BYTES_PER_ELEMENT));
	return half ? fromHalves(values, half) : values;
}

function decodeStrings(data) {
	const items = [];
	const view = new DataView(data.buffer, data.byteOffset);
	for (let at = 0; at + 4 <= data.length;) {
		const size = view.getUint32(at, true);
		items.push(data.slice(at + 4, at + 4 + size));
		at += 4 + size;
	}
	return items;
}

function fromHalves(all, [digits, least]) {
	return Float32Array.from(all, (bits) => {
		const power = (bits & 0x7fff) >> digits;
		const rest = (bits & (2 ** digits - 1)) / 2 ** digits;
		const isLast = power === 2 ** (15 - digits) - 1;
		const size = isLast ? (rest ? NaN : Infinity) : 2 ** (least + Math.max(0, power - 1)) * (rest + Math.min(1, power));
		return bits & 0x8000 ? -size : size;
	});
}

function toHalves(values, [digits, least]) {
	const most = 2 ** 15 - 2 ** digits; // which stands for all that is too large
	return Uint16Array.from(values, (value) => {
		const size = Math.abs(Number(value));
		const power = Math.min(200, Math.max(least, Math.floor(Math.log2(size))));
		const bits = (power - least) * 2 ** digits + Math.round(size / 2 ** (power - digits));
		return Math.min(most, bits) + (value < 0 || Object.is(value, -0) ? 0x8000 : 0);
	});
}

// How files begin, letter by letter; dots stand for any.
const MAGIC = {
	"image/png": "\x89PNG",
	"image/jpeg": "\xff\xd8\xff",
	"image/gif": "GIF8",
	"image/webp": "RIFF....WEBP",
	"audio/wav": "RIFF....WAVE",
	"audio/ogg": "OggS",
	"audio/mpeg": "ID3",
	"audio/flac": "fLaC",
};

export function mediaType(data) {
	if (!isBytes(data)) return "";
	const fits = (letter, at) => letter === "." || letter.charCodeAt(0) === data[at];
	return Object.keys(MAGIC).find((type) => [...MAGIC[type]].every(fits)) || "";
}

export function wave(samples, rate) {
	const size = samples.length * 2;
	const format = [0x45564157, 0x20746d66, 16, 0x10001, rate, rate * 2, 0x100002];
	const head = Uint32Array.of(0x46464952, 36 + size, ...format, 0x61746164, size);
	const out = new Int16Array(22 + samples.length);
	out.set(new Int16Array(head.buffer));
	samples.forEach((value, at) => (out[22 + at] = Math.max(-1, Math.min(1, value)) * 32767));
	return new Uint8Array(out.buffer);
}
