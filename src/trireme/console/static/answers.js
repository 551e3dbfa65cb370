// Outputs as people look at them: text, tables, bars for classes, images with boxes and masks, sounds.
import {h} from "./dom.js";
import {mediaType, sizeOf, wave} from "./tensors.js";

const MOST_ROWS = 50;
const MOST_COLUMNS = 24;
const MOST_TEXTS = 200;
const COLORS = ["#e6550d", "#3182bd", "#31a354", "#756bb1", "#d6b400", "#d62780"];

// context: {labels, image} with `image` the address of a picture that was sent.
export function showOutputs(outputs, context) {
  const named = Object.fromEntries(outputs.map((output) => [output.name, output]));
  const nodes = [];
  const used = new Set();
  const box = outputs.find((output) => output.shape[output.shape.length - 1] === 4 && output.shape.length >= 2 && /box/i.test(output.name));
  const mask = outputs.find((output) => output.shape.length >= 2 && /mask/i.test(output.name));
  if (context.image && (box || mask)) {
    nodes.push(panel("On the image", overlay(context.image, box, mask, named)));
    if (mask) used.add(mask.name);
  }
  if (named.label && named.score && named.label.values.length === named.score.values.length && named.label.values.length) {
    nodes.push(panel("label and score", bars([...named.label.values].map(asText), [...named.score.values].map(Number))));
    used.add("label").add("score");
  }
  for (const output of outputs) if (!used.has(output.name)) nodes.push(panel(output.name, view(output, context, named), output));
  return nodes;
}

const panel = (title, node, output) => h("section", {class: "output", data: {output: title}}, h("h3", {}, h("span", {class: "mono"}, title), output && h("span", {class: "quiet"}, ` ${output.datatype} [${output.shape.join(", ")}]`)), node);

export const asText = (value) => value instanceof Uint8Array ? new TextDecoder().decode(value) : String(value);

function view(output, context, named) {
  const {values, shape, datatype, name} = output;
  if (datatype === "BYTES") return texts(values);
  const inner = shape.length > 1 && shape[0] === 1 ? shape.slice(1) : shape;
  const labels = context.labels && context.labels[name];
  if (inner.length === 1 && inner[0] > 1 && (labels || (/score|prob|logit|class/i.test(name) && inner[0] <= 5000))) {
    const order = [...values].map(Number);
    return bars(order.map((_, at) => labels && labels[at] !== undefined ? labels[at] : String(at)), order);
  }
  if (inner.length === 1 && inner[0] >= 1000 && /audio|sound|wave|speech/i.test(name)) {
    const rate = named.sampling_rate ? Number(named.sampling_rate.values[0]) : 16000;
    return h("div", {}, media(wave(Float32Array.from(values, Number), rate), "audio/wav"), h("p", {class: "quiet"}, `${inner[0]} samples at ${rate} Hz`));
  }
  const drawn = picture(values, inner, datatype);
  return drawn || grid(values, shape);
}

function texts(values) {
  const nodes = [...values].slice(0, MOST_TEXTS).map((value) => {
    const type = mediaType(value);
    if (type) return media(value, type);
    const text = asText(value);
    return h("pre", {class: "code"}, pretty(text));
  });
  if (values.length > MOST_TEXTS) nodes.push(h("p", {class: "quiet"}, `and ${values.length - MOST_TEXTS} more`));
  return h("div", {class: "stack"}, nodes.length ? nodes : h("p", {class: "quiet"}, "empty"));
}

function pretty(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function media(data, type) {
  const address = URL.createObjectURL(new Blob([data], {type}));
  return type.startsWith("image/") ? h("img", {class: "preview", src: address, alt: "Image that the model made"}) : h("audio", {controls: true, src: address});
}

export function bars(names, values) {
  const order = values.map((value, at) => at).sort((left, right) => values[right] - values[left]).slice(0, 20);
  const most = Math.max(...values.map(Math.abs), 1e-12);
  return h("div", {class: "bars"}, order.map((at) => {
    const bar = h("div", {class: "bar"});
    bar.style.width = `${100 * Math.abs(values[at]) / most}%`;
    return [h("span", {}, names[at]), h("div", {class: "track"}, bar), h("span", {class: "n"}, number(values[at]))];
  }), values.length > order.length ? h("span", {class: "quiet"}, `and ${values.length - order.length} more`) : null);
}

const number = (value) => typeof value === "bigint" || Number.isInteger(value) ? String(value) : Number(value).toPrecision(5).replace(/\.?0+$/, "");

function grid(values, shape) {
  const columns = shape.length > 1 ? shape[shape.length - 1] : Math.min(values.length, 12);
  const rows = columns ? Math.ceil(values.length / columns) : 0;
  const shown = Math.min(rows, MOST_ROWS);
  const wide = Math.min(columns, MOST_COLUMNS);
  return h("div", {class: "scroll"}, h("table", {class: "numbers"}, h("tbody", {}, Array.from({length: shown}, (_, row) => h("tr", {}, Array.from({length: wide}, (_, column) => {
    const value = values[row * columns + column];
    return h("td", {class: "n"}, value === undefined ? "" : typeof value === "boolean" ? String(value) : number(value));
  }))))), rows > shown || columns > wide ? h("p", {class: "quiet"}, `${sizeOf(shape)} values, of which ${shown * wide} are shown`) : null);
}

function picture(values, dims, datatype) {
  const isBytes = datatype === "UINT8";
  let [height, width, channels, isFirst] = [0, 0, 0, false];
  if (dims.length === 2 && dims[0] >= 16 && dims[1] >= 16) [height, width, channels] = [...dims, 1];
  else if (dims.length === 3 && [1, 3, 4].includes(dims[2]) && dims[0] >= 8 && dims[1] >= 8) [height, width, channels] = dims;
  else if (dims.length === 3 && [1, 3].includes(dims[0]) && dims[1] >= 8 && dims[2] >= 8) [channels, height, width, isFirst] = [...dims, true];
  else return null;
  if (!isBytes && !/FP/.test(datatype)) return null;
  const numbers = Array.from(values, Number);
  const low = numbers.reduce((least, value) => Math.min(least, value), Infinity);
  const high = numbers.reduce((most, value) => Math.max(most, value), -Infinity);
  const factor = isBytes && high > 1 ? 1 : 255 / ((high - low) || 1);
  const base = isBytes && high > 1 ? 0 : low;
  const canvas = h("canvas", {class: "preview", width, height, role: "img", "aria-label": "Image that the model made"});
  const brush = canvas.getContext("2d");
  const image = brush.createImageData(width, height);
  for (let at = 0; at < height * width; at += 1) for (let channel = 0; channel < 4; channel += 1) {
    const from = channels === 1 ? 0 : channel;
    const value = channel === 3 && channels < 4 ? 255 : (numbers[isFirst ? from * height * width + at : at * channels + from] - base) * factor;
    image.data[4 * at + channel] = value;
  }
  brush.putImageData(image, 0, 0);
  return canvas;
}

function overlay(address, box, mask, named) {
  const canvas = h("canvas");
  const image = h("img", {class: "preview", src: address, alt: "The image that was sent, with what the model found"});
  image.addEventListener("load", () => {
    const zoom = Math.max(1, 480 / image.naturalWidth); // small pictures are shown larger than they are
    canvas.width = image.naturalWidth * zoom;
    canvas.height = image.naturalHeight * zoom;
    const brush = canvas.getContext("2d");
    if (mask) masks(brush, mask, canvas);
    if (!box) return;
    const unit = Math.max(1, canvas.width / 500);
    brush.lineWidth = 4 * unit;
    brush.font = `bold ${20 * unit}px system-ui, sans-serif`;
    for (let at = 0; at * 4 < box.values.length; at += 1) {
      const corners = Array.from(box.values.slice(4 * at, 4 * at + 4), Number);
      const scale = Math.max(...corners) <= 1 ? [canvas.width, canvas.height, canvas.width, canvas.height] : [zoom, zoom, zoom, zoom];
      const [left, top, right, bottom] = corners.map((value, index) => value * scale[index]);
      brush.strokeStyle = brush.fillStyle = COLORS[at % COLORS.length];
      brush.strokeRect(left, top, right - left, bottom - top);
      const words = [named.label && asText(named.label.values[at] === undefined ? "" : named.label.values[at]), named.score && Number(named.score.values[at]).toFixed(2)].filter(Boolean).join(" ");
      brush.fillText(words, left + 3 * unit, Math.max(20 * unit, top - 6 * unit));
    }
  });
  return h("div", {class: "overlay"}, image, canvas);
}

function masks(brush, mask, canvas) {
  const [height, width] = mask.shape.slice(-2);
  const each = height * width;
  for (let layer = 0; layer * each < mask.values.length; layer += 1) {
    const color = COLORS[layer % COLORS.length];
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
    const drawn = new OffscreenCanvas(width, height);
    const image = drawn.getContext("2d").createImageData(width, height);
    for (let at = 0; at < each; at += 1) if (Number(mask.values[layer * each + at])) image.data.set([red, green, blue, 110], 4 * at);
    drawn.getContext("2d").putImageData(image, 0, 0);
    brush.drawImage(drawn, 0, 0, canvas.width, canvas.height);
  }
}
