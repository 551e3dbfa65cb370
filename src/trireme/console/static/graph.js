// An ensemble as a graph: tensors that come in on the left, steps in layers, tensors that go out on the right.
import {modelLink, s, time} from "./dom.js";

const WIDTH = 164;
const HEIGHT = 56;
const GAP_X = 54;
const GAP_Y = 22;

// `measured` are the steps of one request's waterfall, in the place of the means.
export function ensembleGraph(serving, measured) {
  const {steps} = serving;
  const nodes = [
    ...serving.inputs.map((entry) => ({id: `in ${entry.name}`, title: entry.name, sub: entry.datatype, gives: [entry.name], takes: [], layer: 0, isTensor: true})),
    ...steps.map((step, at) => ({id: `step ${at}`, title: step.model, sub: stepTime(step, measured), gives: Object.values(step.outputs), takes: Object.values(step.inputs), layer: 1, step})),
    ...serving.outputs.map((entry) => ({id: `out ${entry.name}`, title: entry.name, sub: entry.datatype, gives: [], takes: [entry.name], layer: 1, isTensor: true})),
  ];
  const makers = new Map();
  for (const node of nodes) for (const tensor of node.gives) makers.set(tensor, node);
  for (let round = 0; round < nodes.length; round += 1) {
    for (const node of nodes) for (const tensor of node.takes) {
      const maker = makers.get(tensor);
      if (maker && maker !== node) node.layer = Math.min(nodes.length, Math.max(node.layer, maker.layer + 1));
    }
  }
  const last = Math.max(...nodes.filter((node) => node.step).map((node) => node.layer), 0) + 1;
  for (const node of nodes) if (node.id.startsWith("out")) node.layer = last;
  const layers = [];
  for (const node of nodes) (layers[node.layer] ||= []).push(node);
  const tallest = Math.max(...layers.filter(Boolean).map((layer) => layer.length));
  layers.forEach((layer, x) => layer.forEach((node, y) => {
    node.x = 4 + x * (WIDTH + GAP_X);
    node.y = 4 + (y + (tallest - layer.length) / 2) * (HEIGHT + GAP_Y);
  }));
  const width = 8 + layers.length * (WIDTH + GAP_X) - GAP_X;
  const height = 8 + tallest * (HEIGHT + GAP_Y) - GAP_Y;
  const edges = nodes.flatMap((node) => node.takes.map((tensor) => [makers.get(tensor), node, tensor]).filter(([from]) => from));
  return s("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Ensemble of ${steps.map((step) => step.model).join(", ")}`},
    edges.map(([from, to, tensor]) => edge(from, to, tensor)), nodes.map(box));
}

function stepTime(step, measured) {
  const own = (measured || []).find((entry) => entry.model === step.model);
  if (own) return `${time(own.duration_us)} in this request`;
  return step.compute_us ? `${time(step.compute_us)} + ${time(step.queue_us)} queue` : "no requests lately";
}

function edge(from, to, tensor) {
  const x1 = from.x + WIDTH;
  const y1 = from.y + HEIGHT / 2;
  const x2 = to.x;
  const y2 = to.y + HEIGHT / 2;
  const bend = Math.max(24, (x2 - x1) / 2);
  return s("path", {d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}, s("title", {}, tensor));
}

function box(node) {
  const short = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
  const group = s("g", {class: node.isTensor ? "io" : undefined}, s("title", {}, node.title),
    s("rect", {x: node.x, y: node.y, width: WIDTH, height: HEIGHT}),
    s("text", {x: node.x + 12, y: node.y + 24}, short(node.title, 20)), s("text", {class: "sub", x: node.x + 12, y: node.y + 42}, short(node.sub, 26)));
  return node.step ? s("a", {href: modelLink(node.step.model, node.step.version)}, group) : group;
}
