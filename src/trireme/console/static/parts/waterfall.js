// Where the time of one request went: a lane for each phase, and the steps of an ensemble.
import {h, joined, note, time} from "./dom.js";

const COLORS = {
	model: 1, first_response: 1, steps: 1, decode: 1, queue: 2, engine_queue: 2,
	output: 3, stream: 3, input: 4, prefill: 4, cache: 6,
};
const PLAIN = 5;

export function waterfall(table) {
	const whole = Math.max(1, table.duration_us || 0);
	const lanes = [];
	const add = (entry, depth) => {
		if (depth || entry.steps) lanes.push(lane("name", entry.model, PLAIN, entry, depth));
		for (const phase of entry.phases || [])
			lanes.push(lane("quiet", phase.name.replace("_", " "), COLORS[phase.name] || PLAIN, phase, depth));
		for (const step of entry.steps || []) add(step, depth + 1);
	};
	const part = (us) => `${Math.min(100, (100 * us) / whole)}%`;
	const lane = (look, label, color, {start_us: start = 0, duration_us: duration = 0}, depth) => {
		const bar = h(`div.f${color}`);
		bar.style.left = part(start);
		bar.style.width = part(duration);
		const name = h(`span.${look}`, label);
		name.style.paddingLeft = `${depth * 0.8}rem`;
		return [name, h("div.lane", bar), h("span.n", time(duration))];
	};
	add(table, 0);
	const measured = ([key, value]) => {
		const isTime = key.endsWith("_us");
		return `${key.replace(/_us$/, "").replaceAll("_", " ")} ${isTime ? time(value) : value}`;
	};
	const words = [
		`${time(table.duration_us)} altogether`,
		table.batch_size && `ran in a batch of ${table.batch_size}`,
		...Object.entries(table.engine || {}).map(measured),
		table.steps_left_out && `${table.steps_left_out} steps left out`,
	];
	return h("div", h("div.wf", lanes), note(joined(words)));
}
