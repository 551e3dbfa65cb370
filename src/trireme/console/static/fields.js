// The fields of "Try it": for each input the ways in which a person can give it.
import {bytes, h, replace} from "./dom.js";
import {encodeStrings, sizeOf} from "./tensors.js";

const MOST_CELLS = 400;
const FLOATS = ["FP32", "FP64", "FP16", "BF16"];

export function createField(input, serving, picked) {
  const ways = waysOf(input, serving);
  const isIncluded = h("input", {type: "checkbox", "aria-label": `Send ${input.name}`});
  const place = h("div");
  let way = null;
  const choice = h("select", {"aria-label": `How to give ${input.name}`, onchange: () => use(choice.value)}, ways.map(([id, label]) => h("option", {value: id}, label)));
  const use = (id) => {
    way = WAYS[id](input, serving, (image) => picked(image));
    replace(place, way.node);
  };
  use(ways[0][0]);
  const field = h("fieldset", {class: "field", data: {input: input.name}},
    h("legend", {class: "row"}, input.optional && isIncluded, h("span", {class: "name mono"}, input.name), h("span", {class: "quiet"}, `${input.datatype} ${shape(input, serving)}`), ways.length > 1 && choice), place);
  return {node: field, name: input.name, read: async () => input.optional && !isIncluded.checked ? null : {name: input.name, datatype: input.datatype, ...await way.read()}, isForm: () => Boolean(way.isForm)};
}

const shape = (input, serving) => `[${[...(serving.max_batch_size ? ["batch"] : []), ...input.dims.map((size) => size === -1 ? "any" : size)].join(", ")}]`;

function waysOf(input, serving) {
  const {dims, datatype} = input;
  const ways = [];
  if (serving.picture_input === input.name) ways.push(["picture", "Image"]);
  if (datatype === "BYTES") {
    ways.push(["text", "Text"], ["file", "File, image or sound"], ["json", "JSON"]);
    if (/image|picture|photo|audio|sound|speech|video/i.test(input.name)) ways.unshift(ways.splice(1, 1)[0]);
    return ways;
  }
  if (isPictureShape(dims) && (FLOATS.slice(0, 2).includes(datatype) || datatype === "UINT8")) ways.push(["pixels", "Image"]);
  if (FLOATS.slice(0, 2).includes(datatype) && dims[dims.length - 1] === -1 && dims.slice(0, -1).every((size) => size === 1) && /audio|sound|speech|wave|signal/i.test(input.name)) ways.push(["samples", "Sound"]);
  if (sizeOf(dims.map((size) => size === -1 ? 1 : size)) <= MOST_CELLS) ways.push(["grid", "Grid"]);
  ways.push(["json", "JSON"]);
  return ways;
}

export function isPictureShape(dims) {
  if (dims.length !== 3) return false;
  const [first, , last] = dims;
  return ([1, 3].includes(first) || [1, 3].includes(last)) && dims.filter((size) => size === -1 || size >= 8).length === 2;
}

const batched = (serving, dims) => serving.max_batch_size ? [1, ...dims] : dims;

const WAYS = {
  text(input, serving) {
    const isMany = sizeOf(input.dims) !== 1;
    const area = h("textarea", {"aria-label": input.name, placeholder: isMany ? "One text per line" : "Text"});
    return {node: area, read: async () => {
      const data = isMany ? area.value.split("\n") : [area.value];
      return {shape: batched(serving, input.dims.map((size) => size === -1 ? data.length : size)), data};
    }};
  },
  json(input, serving) {
    const isText = input.datatype === "BYTES";
    const area = h("textarea", {"aria-label": `${input.name} as JSON`, placeholder: isText ? '["text"]' : "[[1, 2], [3, 4]]"});
    return {node: h("div", {}, area, h("p", {class: "quiet"}, "A list, nested as its shape is", serving.max_batch_size ? ", without the batch." : ".")), read: async () => {
      const value = JSON.parse(area.value || "[]");
      const found = [];
      for (let inner = value; Array.isArray(inner); inner = inner[0]) found.push(inner.length);
      return {shape: batched(serving, found.length ? found : [1]), data: Array.isArray(value) ? value.flat(Infinity) : [value]};
    }};
  },
  grid(input, serving) {
    const sizes = input.dims.map((size, at) => size === -1 ? (at === input.dims.length - 1 ? 4 : 1) : size);
    const node = h("div");
    let cells = [];
    const draw = () => {
      const before = cells.map((cell) => cell.type === "checkbox" ? cell.checked : cell.value);
      const columns = sizes.length ? sizes[sizes.length - 1] : 1;
      const total = Math.min(MOST_CELLS, sizeOf(sizes));
      const isBool = input.datatype === "BOOL";
      cells = Array.from({length: total}, (_, at) => h("input", {type: isBool ? "checkbox" : "number", step: /FP|BF/.test(input.datatype) ? "any" : "1", "aria-label": `${input.name} value ${at + 1}`, value: isBool ? undefined : before[at] === undefined ? "0" : before[at]}));
      const grid = h("div", {class: "grid-numbers"}, cells);
      grid.style.gridTemplateColumns = `repeat(${columns}, max-content)`;
      const free = input.dims.map((size, at) => size === -1 ? h("label", {}, `Size ${at + 1} `, h("input", {type: "number", min: 1, max: MOST_CELLS, value: String(sizes[at]), class: "narrow", onchange: (event) => {
        sizes[at] = Math.max(1, Math.min(MOST_CELLS, Number(event.target.value) || 1));
        draw();
      }})) : null);
      replace(node, h("div", {class: "row"}, free), grid);
    };
    draw();
    return {node, read: async () => ({shape: batched(serving, sizes), data: cells.map((cell) => cell.type === "checkbox" ? cell.checked : Number(cell.value))})};
  },
  file(input, serving, picked) {
    const pick = filePicker(input.name, "", picked);
    return {node: pick.node, read: async () => ({shape: batched(serving, input.dims.map((size) => size === -1 ? 1 : size)), data: encodeStrings([await pick.bytes()]), file: pick.name()})};
  },
  picture(input, serving, picked) {
    const pick = filePicker(input.name, "image/*", picked);
    return {node: pick.node, isForm: true, read: async () => ({form: await pick.blob(), file: pick.name()})};
  },
  pixels(input, serving, picked) {
    const pick = filePicker(input.name, "image/*", picked);
    const scale = h("select", {"aria-label": "Range of values"}, h("option", {value: "1"}, "0 to 255"), h("option", {value: String(1 / 255)}, "0 to 1"));
    if (input.datatype !== "UINT8") scale.value = String(1 / 255);
    const isFirst = [1, 3].includes(input.dims[0]);
    const [channels, height, width] = isFirst ? input.dims : [input.dims[2], input.dims[0], input.dims[1]];
    return {node: h("div", {}, pick.node, input.datatype !== "UINT8" && h("label", {}, "Values ", scale)), read: async () => {
      const image = await createImageBitmap(await pick.blob());
      const [high, wide] = [height === -1 ? image.height : height, width === -1 ? image.width : width];
      const canvas = new OffscreenCanvas(wide, high);
      const brush = canvas.getContext("2d");
      brush.drawImage(image, 0, 0, wide, high);
      const {data} = brush.getImageData(0, 0, wide, high);
      const factor = input.datatype === "UINT8" ? 1 : Number(scale.value);
      const out = input.datatype === "UINT8" ? new Uint8Array(channels * high * wide) : input.datatype === "FP64" ? new Float64Array(channels * high * wide) : new Float32Array(channels * high * wide);
      for (let at = 0; at < high * wide; at += 1) for (let channel = 0; channel < channels; channel += 1) {
        const value = channels === 1 ? (data[4 * at] + data[4 * at + 1] + data[4 * at + 2]) / 3 : data[4 * at + channel];
        out[isFirst ? channel * high * wide + at : at * channels + channel] = value * factor;
      }
      return {shape: batched(serving, isFirst ? [channels, high, wide] : [high, wide, channels]), data: new Uint8Array(out.buffer), made: pick.name()};
    }};
  },
  samples(input, serving) {
    const pick = filePicker(input.name, "audio/*", () => {});
    const pace = h("input", {type: "number", value: "16000", min: 1000, max: 192000, class: "narrow", "aria-label": "Samples per second"});
    return {node: h("div", {}, pick.node, h("label", {}, "Samples per second ", pace)), read: async () => {
      const context = new OfflineAudioContext(1, 1, Number(pace.value));
      const sound = await context.decodeAudioData((await pick.bytes()).buffer);
      const values = Float32Array.from(sound.getChannelData(0));
      const out = input.datatype === "FP64" ? Float64Array.from(values) : values;
      return {shape: batched(serving, input.dims.map((size) => size === -1 ? values.length : size)), data: new Uint8Array(out.buffer), made: pick.name()};
    }};
  },
};

function filePicker(name, accept, picked) {
  const preview = h("div");
  let address = "";
  const input = h("input", {type: "file", accept: accept || undefined, "aria-label": `File for ${name}`, onchange: () => {
    if (address) URL.revokeObjectURL(address);
    const [file] = input.files;
    if (!file) { replace(preview); return; }
    address = URL.createObjectURL(file);
    const isImage = file.type.startsWith("image/");
    if (isImage) picked(address);
    replace(preview, isImage ? h("img", {class: "preview", src: address, alt: `Preview of ${file.name}`}) : file.type.startsWith("audio/") ? h("audio", {controls: true, src: address}) : null,
      h("p", {class: "quiet"}, `${file.name}, ${bytes(file.size)}`));
  }});
  const blob = async () => {
    if (!input.files.length) throw new Error(`Choose a file for ${name}.`);
    return input.files[0];
  };
  return {node: h("div", {}, input, preview), blob, name: () => input.files.length ? input.files[0].name : "", bytes: async () => new Uint8Array(await (await blob()).arrayBuffer())};
}
