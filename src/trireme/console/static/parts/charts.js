// Charts as SVG: sparklines, and the last hour as lines or areas with a cursor for mouse and keyboard.
import {clock, h, replace, s, time} from "./dom.js";

const HEIGHT = 170;
const [LEFT, RIGHT, TOP, BOTTOM] = [56, 6, 8, 20];

export function sparkline() {
	const area = s("path.area");
	const line = s("path");
	const size = {viewBox: "0 0 96 22", preserveAspectRatio: "none", "aria-hidden": "true"};
	let drawn = "";
	const draw = (values) => {
		const most = Math.max(...values, 1e-9);
		const step = 96 / (values.length - 1);
		const path = values.length > 1 ? joined(values.map((value, at) => [at * step, 20.5 - (18 * value) / most])) : "";
		if (path === drawn) return;
		drawn = path;
		line.setAttribute("d", path);
		area.setAttribute("d", path && `${path}L96 22L0 22Z`);
	};
	return {svg: s("svg.spark", size, area, line), draw};
}

const joined = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function niceTop(value) {
	if (!(value > 0)) return 1;
	const power = 10 ** Math.floor(Math.log10(value));
	return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

export class Chart {
	constructor({title, format, isStacked = false, least = 0}) {
		Object.assign(this, {title, format, isStacked, least, data: null, cursor: null, width: 0, frame: 0});
		this.svg = s("svg", {
			role: "img",
			tabindex: "0",
			onpointermove: (event) => this.#point(event),
			onpointerleave: () => this.#choose(null),
			onblur: () => this.#choose(null),
			onkeydown: (event) => this.#step(event),
		});
		this.legend = h("div.legend");
		this.node = h("section.card.chart", h("h2.minor", title), this.svg, this.legend);
		this.sizes = new ResizeObserver(([entry]) => {
			this.width = Math.round(entry.contentRect.width);
			this.#drawSoon();
		});
		this.sizes.observe(this.svg);
	}

	set(data) {
		this.data = data;
		if (this.cursor >= data.times.length) this.cursor = null;
		this.#drawSoon();
	}

	stop() {
		this.sizes.disconnect();
		cancelAnimationFrame(this.frame);
	}

	#drawSoon() {
		this.frame ||= requestAnimationFrame(() => {
			this.frame = 0;
			if (this.data && this.width) this.#draw();
		});
	}

	#choose(cursor) {
		if (this.cursor === cursor) return;
		this.cursor = cursor;
		this.#drawSoon();
	}

	#point(event) {
		const times = this.data?.times;
		if (!times?.length) return;
		const box = this.svg.getBoundingClientRect();
		const {from, length} = extent(times);
		const wanted = from + (length * (event.clientX - box.left - LEFT)) / (box.width - LEFT - RIGHT);
		const nearer = (best, at, index) => (Math.abs(at - wanted) < Math.abs(times[best] - wanted) ? index : best);
		this.#choose(times.reduce(nearer, 0));
	}

	#step(event) {
		const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
		if (!step || !this.data) return;
		event.preventDefault();
		const last = this.data.times.length - 1;
		this.#choose(Math.min(last, Math.max(0, (this.cursor ?? last) + step)));
	}

	#draw() {
		const {width, data} = this;
		const {times, series, events = []} = data;
		const {from, length} = extent(times);
		const top = this.#top();
		const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - from)) / length;
		const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
		const place = (at, value) => [x(times[at]), y(value)];
		const upright = (kind, at, ...inner) =>
			s(`line.${kind}`, {x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM}, ...inner);
		this.recent = events.filter((event) => event.time_s >= from);
		this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
		replace(
			this.svg,
			this.#grid(top, y),
			hours(from, length, width < 420 ? 2 : 4, x),
			this.isStacked ? areas(series, place) : lines(series, place),
			this.recent.map((event) => upright("event", event.time_s, s("title", event.text))),
			this.cursor !== null && times.length > 0 && upright("cursor", times[this.cursor]),
		);
		this.#tell();
	}

	#top() {
		const {times, series} = this.data;
		const sum = (at) => series.reduce((total, one) => total + (one.values[at] || 0), 0);
		const all = this.isStacked ? times.map((_, at) => sum(at)) : series.flatMap((one) => one.values);
		return niceTop(all.reduce((most, value) => Math.max(most, value), this.least));
	}

	#grid(top, y) {
		const word = (value) => this.format(value).replace(/\.0+(?= |$)/, "");
		return [0, top / 2, top].map((value) => [
			s("line.grid", {x1: LEFT, x2: this.width - RIGHT, y1: y(value), y2: y(value)}),
			s("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, word(value)),
		]);
	}

	#tell() {
		const {times, series, eventName} = this.data;
		const at = this.cursor ?? times.length - 1;
		const word = ({values}) => (at < 0 || (this.format === time && !values[at]) ? "–" : this.format(values[at]));
		this.svg.setAttribute("aria-label", `${this.title}: ${series.map((one) => `${one.name} ${word(one)}`).join(", ")}`);
		const key = (one) => h("span", h(`span.key.f${one.color}`), `${one.name} `, h("b", word(one)));
		replace(
			this.legend,
			this.cursor !== null && times.length > 0 && h("span", clock(times[at])),
			series.map(key),
			this.recent.length > 0 && h("span", h("span.some-bad", "┃ "), eventName),
		);
	}
}

function hours(from, length, marks, x) {
	return Array.from({length: marks + 1}, (_, mark) => {
		const at = from + (length * mark) / marks;
		const anchor = mark === marks ? "end" : mark ? "middle" : "start";
		return s("text", {x: x(at), y: HEIGHT - 4, "text-anchor": anchor}, clock(at, "short"));
	});
}

function extent(times) {
	const now = times.at(-1) ?? Date.now() / 1000;
	const passed = now - (times[0] ?? now);
	const length = [300, 900, 1800].find((one) => passed <= one) || 3600;
	return {from: now - length, length};
}

function runs(values) {
	const found = [];
	values.forEach((value, at) => {
		if (value === null) return;
		if (!at || values[at - 1] === null) found.push([]);
		found.at(-1).push(at);
	});
	return found;
}

function lines(series, place) {
	return series.map(({values, color}) => {
		const path = (run) => joined(run.map((at) => place(at, values[at]))) + (run.length > 1 ? "" : "h.01");
		return s(`path.line.f${color}`, {d: runs(values).map(path).join("")});
	});
}

function areas(series, place) {
	let floor = [];
	return series.map(({values, color}) => {
		const below = floor;
		floor = values.map((value, at) => (below[at] || 0) + value);
		const path = (run) => {
			const up = run.map((at) => place(at, floor[at]));
			const down = run.map((at) => place(at, below[at] || 0)).reverse();
			if (run.length > 1) return `${joined([...up, ...down])}Z`;
			const [[x, high], [, low]] = [up[0], down[0]];
			return `${joined([[x - 1, high]])}h2V${low.toFixed(1)}h-2Z`;
		};
		return s(`path.fill.f${color}`, {d: runs(values).map(path).join("")});
	});
}
