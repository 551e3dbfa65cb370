// Charts as plain SVG: sparklines, and lines or stacked areas over the last hour with a cursor for mouse and keyboard.
import {clock, h, replace, s} from "./dom.js";

const HEIGHT = 170;
const LEFT = 56;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 6;

export function sparkline() {
  const area = s("path", {class: "area"});
  const line = s("path");
  const svg = s(
    "svg",
    {class: "spark", viewBox: "0 0 96 22", preserveAspectRatio: "none", "aria-hidden": "true"},
    area,
    line,
  );
  let drawn = "";
  return {
    svg,
    draw(values) {
      const most = Math.max(...values, 1e-9);
      const step = 96 / Math.max(1, values.length - 1);
      const path = values
        .map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${(20.5 - (18 * value) / most).toFixed(1)}`)
        .join("");
      if (path === drawn) return;
      drawn = path;
      line.setAttribute("d", values.length > 1 ? path : "");
      area.setAttribute("d", values.length > 1 ? `${path}L96 22L0 22Z` : "");
    },
  };
}

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// series: [{name, values, color}] with null for gaps; `events`: [{time_s, text}] drawn as vertical lines.
export const chart = (options) => new Chart(options);

class Chart {
  constructor({title, format, isStacked = false, least = 0}) {
    Object.assign(this, {title, format, isStacked, least});
    this.svg = s("svg", {role: "img", tabindex: "0"});
    this.legend = h("div", {class: "legend"});
    this.node = h("section", {class: "card chart"}, h("h2", {class: "minor"}, title), this.svg, this.legend);
    this.data = null;
    this.cursor = null;
    this.width = 0;
    this.frame = 0;
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#choose(null));
    this.svg.addEventListener("blur", () => this.#choose(null));
    this.svg.addEventListener("keydown", (event) => this.#step(event));
    this.sizes = new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
      this.#drawSoon();
    });
    this.sizes.observe(this.svg);
  }

  set(data) {
    this.data = data;
    if (this.cursor !== null && this.cursor >= data.times.length) this.cursor = null;
    this.#drawSoon();
  }

  stop() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // However often a mouse moves, a chart is drawn once for each picture on the screen.
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
    if (!this.data || !this.data.times.length) return;
    const {times} = this.data;
    const box = this.svg.getBoundingClientRect();
    const now = times[times.length - 1];
    const length = lengthOf(times, now);
    const wanted = now - length + (length * (event.clientX - box.left - LEFT)) / (box.width - LEFT - RIGHT);
    const nearer = (best, at, index) => (Math.abs(at - wanted) < Math.abs(times[best] - wanted) ? index : best);
    this.#choose(times.reduce(nearer, 0));
  }

  #step(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !this.data) return;
    event.preventDefault();
    const last = this.data.times.length - 1;
    this.#choose(Math.min(last, Math.max(0, (this.cursor === null ? last : this.cursor) + step)));
  }

  #draw() {
    const {width, data} = this;
    const {times, series} = data;
    const now = times.length ? times[times.length - 1] : Date.now() / 1000;
    const length = lengthOf(times, now);
    const from = now - length;
    const top = this.#top();
    const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - from)) / length;
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const upright = (kind, at, ...inner) =>
      s("line", {class: kind, x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM}, ...inner);
    const events = (data.events || []).filter((event) => event.time_s >= from);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    replace(
      this.svg,
      this.#grid(top, y),
      hours(from, length, width < 420 ? 2 : 4, x),
      this.isStacked ? areas(times, series, x, y) : lines(times, series, x, y),
      events.map((event) => upright("event", event.time_s, s("title", {}, event.text))),
      this.cursor !== null && times.length ? upright("cursor", times[this.cursor]) : null,
    );
    this.#tell();
  }

  #top() {
    const {times, series} = this.data;
    const sum = (at) => series.reduce((total, one) => total + (one.values[at] || 0), 0);
    const all = this.isStacked ? times.map((_, at) => sum(at)) : series.flatMap((one) => one.values);
    return niceTop(all.reduce((most, value) => Math.max(most, value || 0), this.least));
  }

  #grid(top, y) {
    const word = (value) => this.format(value).replace(/\.0+(?= |$)/, "");
    return [0, top / 2, top].map((value) => [
      s("line", {class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(value), y2: y(value)}),
      s("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, word(value)),
    ]);
  }

  // The values under the cursor, or the last ones, below the chart and for those who do not see it.
  #tell() {
    const {times, series, events, eventName} = this.data;
    const at = this.cursor === null ? times.length - 1 : this.cursor;
    const word = (one) => (at >= 0 ? this.format(one.values[at]) : "–");
    this.svg.setAttribute("aria-label", `${this.title}: ${series.map((one) => `${one.name} ${word(one)}`).join(", ")}`);
    replace(
      this.legend,
      this.cursor === null || !times.length ? null : h("span", {}, clock(times[at])),
      series.map((one) =>
        h("span", {}, h("span", {class: `key f${one.color}`}), `${one.name} `, h("b", {}, word(one))),
      ),
      events && events.length ? h("span", {}, h("b", {class: "some-bad"}, "┃ "), eventName) : null,
    );
  }
}

function hours(from, length, marks, x) {
  return Array.from({length: marks + 1}, (_, mark) => {
    const at = from + (length * mark) / marks;
    const anchor = mark === marks ? "end" : mark ? "middle" : "start";
    return s("text", {x: x(at), y: HEIGHT - 4, "text-anchor": anchor}, clock(at, false));
  });
}

function lines(times, series, x, y) {
  return series.map((one) => s("path", {class: `line f${one.color}`, d: linePath(times, one.values, x, y)}));
}

function areas(times, series, x, y) {
  let floor = times.map(() => 0);
  return series.map((one) => {
    const heights = one.values.map((value, at) => (value === null ? null : floor[at] + value));
    const area = s("path", {class: `fill f${one.color}`, d: areaPath(times, heights, floor, x, y)});
    floor = heights.map((value, at) => (value === null ? floor[at] : value));
    return area;
  });
}

// The whole hour, or less while the server has not been up for so long.
function lengthOf(times, now) {
  const known = times.length ? now - times[0] : 0;
  return [300, 900, 1800].find((length) => known <= length) || 3600;
}

function linePath(times, values, x, y) {
  let path = "";
  let isOpen = false;
  values.forEach((value, at) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    path += `${isOpen ? "L" : "M"}${x(times[at]).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!isOpen && (at + 1 === values.length || values[at + 1] === null)) path += "h.01";
    isOpen = true;
  });
  return path;
}

function areaPath(times, heights, floor, x, y) {
  let path = "";
  let run = [];
  const close = () => {
    if (run.length === 1) {
      const [at] = run; // as wide as can be seen
      path += `M${(x(times[at]) - 1).toFixed(1)} ${y(heights[at]).toFixed(1)}h2V${y(floor[at]).toFixed(1)}h-2Z`;
    } else if (run.length) {
      const up = run.map((at, first) => `${first ? "L" : "M"}${x(times[at]).toFixed(1)} ${y(heights[at]).toFixed(1)}`);
      const down = run
        .slice()
        .reverse()
        .map((at) => `L${x(times[at]).toFixed(1)} ${y(floor[at]).toFixed(1)}`);
      path += up.join("") + down.join("") + "Z";
    }
    run = [];
  };
  heights.forEach((value, at) => (value === null ? close() : run.push(at)));
  close();
  return path;
}
