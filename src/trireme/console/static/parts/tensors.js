// Tensors of the protocol as bytes and as JSON: requests that carry files, answers with binary outputs.
const ARRAYS = {
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  FP32: Float32Array,
  FP64: Float64Array,
  BOOL: Uint8Array,
};

// Digits behind the point and the least power of two. Their values are not for JSON.
export const HALVES = {FP16: [10, -14], BF16: [7, -126]};

export const sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);

export const batched = (serving, dims) => (serving.max_batch_size ? [1, ...dims] : dims);

export function shapeText(entry, serving) {
  const dims = serving.max_batch_size ? ["batch", ...entry.dims] : entry.dims;
  return `[${dims.map((size) => (size === -1 ? "any" : size)).join(", ")}]`;
}

// JSON with whole numbers as they are written: those that a double cannot hold are BigInts here.
const exact = (_, value, source) =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && source && /^-?\d+$/.test(source.source)
    ? BigInt(source.source)
    : value;

export const parseJson = (text) => JSON.parse(text, exact);

export function writeJson(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(writeJson).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return `{${members.map(([name, inner]) => `${JSON.stringify(name)}:${writeJson(inner)}`).join()}}`;
}

export const asText = (value) => (value instanceof Uint8Array ? new TextDecoder().decode(value) : String(value));

export function encodeStrings(items) {
  const total = items.reduce((sum, item) => sum + 4 + item.length, 0);
  const out = new Uint8Array(total);
  const view = new DataView(out.buffer);
  let at = 0;
  for (const item of items) {
    view.setUint32(at, item.length, true);
    out.set(item, at + 4);
    at += 4 + item.length;
  }
  return out;
}

// inputs: [{name, datatype, shape, data}] with `data` a plain list, or a Uint8Array of the wire's bytes.
export function encodeRequest(given, parameters, wantsBinary) {
  const inputs = given.map(({data, ...more}) => ({...more, data: wireData(more, data)}));
  const isBinary = inputs.some((input) => input.data instanceof Uint8Array);
  const described = inputs.map(({name, datatype, shape, data}) =>
    data instanceof Uint8Array
      ? {name, datatype, shape, parameters: {binary_data_size: data.length}}
      : {name, datatype, shape, data},
  );
  const more = wantsBinary ? {...parameters, binary_data_output: true} : parameters;
  const head = {inputs: described, ...(Object.keys(more).length ? {parameters: more} : {})};
  const text = new TextEncoder().encode(writeJson(head));
  if (!isBinary) return {body: text, headers: {"Content-Type": "application/json"}};
  return {
    body: new Blob([text, ...inputs.filter((input) => input.data instanceof Uint8Array).map((input) => input.data)]),
    headers: {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(text.length)},
  };
}

function wireData({name, datatype}, data) {
  const half = HALVES[datatype];
  return half && Array.isArray(data) ? new Uint8Array(toHalves(data, half, name).buffer) : data;
}

export async function decodeAnswer(answer) {
  const length = answer.headers.get("Inference-Header-Content-Length");
  if (!length) return decodeJson(parseJson(await answer.text()));
  const buffer = await answer.arrayBuffer();
  const head = JSON.parse(new TextDecoder().decode(buffer.slice(0, Number(length))));
  let at = Number(length);
  const outputs = (head.outputs || []).map((output) => {
    const size = output.parameters && output.parameters.binary_data_size;
    if (size === undefined) return {...output, values: output.data || []};
    const raw = buffer.slice(at, at + size);
    at += size;
    return {...output, values: decode(output.datatype, raw)};
  });
  return {...head, outputs};
}

export function decodeJson(head) {
  return {
    ...head,
    outputs: (head.outputs || []).map((output) => ({...output, values: (output.data || []).flat(Infinity)})),
  };
}

// The data may end anywhere: what is not a whole number is left out, a text is as long as it is.
export function decode(datatype, raw) {
  if (datatype === "BYTES") return decodeStrings(new Uint8Array(raw));
  const half = HALVES[datatype];
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

function toHalves(values, [digits, least], name) {
  const most = 2 ** 15 - 2 ** digits; // which stands for all that is too large
  return Uint16Array.from(values, (value) => {
    if (typeof value !== "bigint" && value !== +value) throw new Error(`${name}: ${writeJson(value)} is no number.`);
    const size = Math.abs(Number(value));
    const power = Math.min(200, Math.max(least, Math.floor(Math.log2(size))));
    const bits = (power - least) * 2 ** digits + Math.round(size / 2 ** (power - digits));
    return Math.min(most, bits) + (value < 0 || Object.is(value, -0) ? 0x8000 : 0);
  });
}

const MAGIC = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["audio/ogg", [0x4f, 0x67, 0x67, 0x53]],
  ["audio/mpeg", [0x49, 0x44, 0x33]],
  ["audio/flac", [0x66, 0x4c, 0x61, 0x43]],
];

export function mediaType(data) {
  if (!(data instanceof Uint8Array)) return "";
  if (data.length > 12 && data[0] === 0x52 && data[1] === 0x49)
    return data[8] === 0x57 && data[9] === 0x45 ? "image/webp" : "audio/wav";
  const found = MAGIC.find(([, bytes]) => bytes.every((byte, at) => data[at] === byte));
  return found ? found[0] : "";
}

export function wave(samples, rate) {
  const out = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const text = (at, word) => [...word].forEach((letter, index) => out.setUint8(at + index, letter.charCodeAt(0)));
  text(0, "RIFF");
  out.setUint32(4, 36 + samples.length * 2, true);
  text(8, "WAVEfmt ");
  out.setUint32(16, 16, true);
  out.setUint16(20, 1, true);
  out.setUint16(22, 1, true);
  out.setUint32(24, rate, true);
  out.setUint32(28, rate * 2, true);
  out.setUint16(32, 2, true);
  out.setUint16(34, 16, true);
  text(36, "data");
  out.setUint32(40, samples.length * 2, true);
  samples.forEach((value, at) => out.setInt16(44 + at * 2, Math.max(-1, Math.min(1, value)) * 32767, true));
  return new Uint8Array(out.buffer);
}
