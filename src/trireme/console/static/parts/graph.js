// An ensemble as a graph, from left to right: tensors that come in, steps, tensors that go out.
import {modelLink, s, time} from "./dom.js";

const WIDTH = 164;
const HEIGHT = 56;
const GAP_X = 54;
const GAP_Y = 22;

export function ensembleGraph(serving, measured = []) {
	const nodes = nodesOf(serving, measured);
	const makers = new Map();
	for (const node of nodes) for (const tensor of node.gives) makers.set(tensor, node);
	const {width, height} = arrange(nodes, makers);
	const into = (node) => node.takes.map((tensor) => makers.has(tensor) && edge(makers.get(tensor), node, tensor));
	const label = `Ensemble of ${serving.steps.map((step) => step.model).join(", ")}`;
	const size = {width, height, viewBox: `0 0 ${width} ${height}`};
	return s("svg", {...size, role: "group", label}, nodes.map(into), nodes.map(box));
}

function nodesOf(serving, measured) {
	const left = [...measured];
	const tensor = ({name, datatype}) => ({title: name, sub: datatype, gives: [], takes: [], layer: 1, isTensor: true});
	return [
		...serving.inputs.map((entry) => ({...tensor(entry), gives: [entry.name], layer: 0})),
		...serving.steps.map((step) => ({
			title: step.model,
			sub: stepTime(step, left),
			gives: Object.values(step.outputs),
			takes: Object.values(step.inputs),
			layer: 1,
			step,
		})),
		...serving.outputs.map((entry) => ({...tensor(entry), takes: [entry.name], isLast: true})),
	];
}

function stepTime(step, left) {
	const at = left.findIndex((entry) => entry.model === step.model);
	if (at >= 0) return `${time(left.splice(at, 1)[0].duration_us)} in this request`;
	return step.compute_us ? `${time(step.compute_us)} + ${time(step.queue_us)} queue` : "no requests lately";
}

function arrange(nodes, makers) {
	for (let round = 0; round < nodes.length; round += 1) {
		for (const node of nodes) {
			const before = node.takes.map((tensor) => makers.get(tensor)).filter((maker) => maker && maker !== node);
			node.layer = Math.min(nodes.length, Math.max(node.layer, ...before.map((maker) => maker.layer + 1)));
		}
	}
	const last = Math.max(0, ...nodes.filter((node) => node.step).map((node) => node.layer)) + 1;
	for (const node of nodes) if (node.isLast) node.layer = last;
	const layers = [];
	for (const node of nodes) (layers[node.layer] ||= []).push(node);
	const tallest = Math.max(...layers.filter(Boolean).map((layer) => layer.length));
	layers.forEach((layer, x) =>
		layer.forEach((node, y) => {
			node.x = 4 + x * (WIDTH + GAP_X);
			node.y = 4 + (y + (tallest - layer.length) / 2) * (HEIGHT + GAP_Y);
		}),
	);
	return {width: 8 + layers.length * (WIDTH + GAP_X) - GAP_X, height: 8 + tallest * (HEIGHT + GAP_Y) - GAP_Y};
}

function edge(from, to, tensor) {
	const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
	const bend = Math.max(24, (x2 - x1) / 2);
	return s("path", {d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}, s("title", tensor));
}

function box(node) {
	const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
	const group = s(
		"g",
		{class: node.isTensor && "io"},
		s("title", node.title),
		s("rect", {x: node.x, y: node.y, width: WIDTH, height: HEIGHT}),
		s("text", {x: node.x + 12, y: node.y + 24}, short(node.title, 20)),
		s("text.sub", {x: node.x + 12, y: node.y + 42}, short(node.sub, 26)),
	);
	return node.step ? s("a", {href: modelLink(node.step.model, node.step.version)}, group) : group;
}
