// Charts as plain SVG: sparklines, and lines or stacked areas over the last hour with a cursor for mouse and keyboard.
import {clock, h, replace, s} from "./dom.js";

const HEIGHT = 170;
const LEFT = 56;
const BOTTOM = 20;
const TOP = 8;

export function sparkline() {
  const area = s("path", {class: "area"});
  const line = s("path");
  const svg = s("svg", {class: "spark", viewBox: "0 0 96 22", preserveAspectRatio: "none", "aria-hidden": "true"}, area, line);
  let drawn = "";
  return {svg, draw(values) {
    const most = Math.max(...values, 1e-9);
    const step = 96 / Math.max(1, values.length - 1);
    const path = values.map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${(20.5 - 18 * value / most).toFixed(1)}`).join("");
    if (path === drawn) return;
    drawn = path;
    line.setAttribute("d", values.length > 1 ? path : "");
    area.setAttribute("d", values.length > 1 ? `${path}L96 22L0 22Z` : "");
  }};
}

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// series: [{name, values, color}] with null for gaps; `events`: [{time_s, text}] drawn as vertical lines.
export function chart({title, format, isStacked = false, least = 0}) {
  const svg = s("svg", {role: "img", tabindex: "0"});
  const legend = h("div", {class: "legend"});
  const node = h("section", {class: "card chart"}, h("h2", {class: "minor"}, title), svg, legend);
  let data = null;
  let cursor = null;
  let width = 0;

  function draw() {
    if (!data || !width) return;
    const {times, series, events} = data;
    const now = times.length ? times[times.length - 1] : Date.now() / 1000;
    const length = lengthOf(times, now);
    const from = now - length;
    const x = (at) => LEFT + (width - LEFT - 6) * (at - from) / length;
    const sums = times.map((_, at) => series.reduce((sum, one) => sum + (one.values[at] || 0), 0));
    const all = isStacked ? sums : series.flatMap((one) => one.values.filter((value) => value !== null));
    const top = niceTop(Math.max(least, ...all));
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const parts = [0, 0.5, 1].map((part) => [
      s("line", {class: "grid", x1: LEFT, x2: width - 6, y1: y(top * part), y2: y(top * part)}),
      s("text", {x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end"}, format(top * part).replace(/\.0+(?= |$)/, ""))]);
    const marks = width < 420 ? 2 : 4;
    for (let mark = 0; mark <= marks; mark += 1) {
      const at = from + length * mark / marks;
      parts.push(s("text", {x: x(at), y: HEIGHT - 4, "text-anchor": mark === marks ? "end" : mark ? "middle" : "start"}, clock(at, false)));
    }
    let floor = times.map(() => 0);
    for (const one of series) {
      const heights = one.values.map((value, at) => value === null ? null : isStacked ? floor[at] + value : value);
      parts.push(isStacked
        ? s("path", {class: `fill f${one.color}`, d: areaPath(times, heights, floor, x, y)})
        : s("path", {class: `line s${one.color}`, d: linePath(times, heights, x, y)}));
      if (isStacked) floor = heights.map((value, at) => value === null ? floor[at] : value);
    }
    for (const event of events || []) {
      if (event.time_s >= from) parts.push(s("line", {class: "event", x1: x(event.time_s), x2: x(event.time_s), y1: TOP, y2: HEIGHT - BOTTOM}, s("title", {}, event.text)));
    }
    const at = cursor === null ? times.length - 1 : cursor;
    if (cursor !== null && times.length) parts.push(s("line", {class: "cursor", x1: x(times[at]), x2: x(times[at]), y1: TOP, y2: HEIGHT - BOTTOM}));
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    replace(svg, parts);
    const said = series.map((one) => `${one.name} ${at >= 0 ? format(one.values[at]) : "–"}`);
    svg.setAttribute("aria-label", `${title}: ${said.join(", ")}`);
    replace(legend, cursor === null || !times.length ? null : h("span", {}, clock(times[at])),
      series.map((one) => h("span", {}, h("span", {class: `key f${one.color}`}), one.name, " ", h("b", {}, at >= 0 ? format(one.values[at]) : "–"))),
      (events || []).length ? h("span", {}, h("b", {class: "some-bad"}, "┃ "), data.eventName) : null);
  }

  function point(event) {
    if (!data || !data.times.length) return;
    const box = svg.getBoundingClientRect();
    const now = data.times[data.times.length - 1];
    const length = lengthOf(data.times, now);
    const wanted = now - length + length * (event.clientX - box.left - LEFT) / (box.width - LEFT - 6);
    cursor = data.times.reduce((best, at, index) => Math.abs(at - wanted) < Math.abs(data.times[best] - wanted) ? index : best, 0);
    draw();
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerleave", () => { cursor = null; draw(); });
  svg.addEventListener("blur", () => { cursor = null; draw(); });
  svg.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !data) return;
    event.preventDefault();
    const last = data.times.length - 1;
    cursor = Math.min(last, Math.max(0, (cursor === null ? last : cursor) + step));
    draw();
  });
  new ResizeObserver(([entry]) => { width = Math.round(entry.contentRect.width); draw(); }).observe(svg);
  return {node, set(given) { data = given; if (cursor !== null && cursor >= given.times.length) cursor = null; draw(); }};
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
    if (value === null) { isOpen = false; return; }
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
    if (run.length) {
      const up = run.map((at, first) => `${first ? "L" : "M"}${x(times[at]).toFixed(1)} ${y(heights[at]).toFixed(1)}`);
      const down = run.slice().reverse().map((at) => `L${x(times[at]).toFixed(1)} ${y(floor[at]).toFixed(1)}`);
      path += up.join("") + down.join("") + "Z";
    }
    run = [];
  };
  heights.forEach((value, at) => value === null ? close() : run.push(at));
  close();
  return path;
}
