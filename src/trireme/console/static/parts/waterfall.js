// Where the time of one request went: a lane for each phase, steps of an ensemble below the request that made them.
import {h, time} from "./dom.js";

const COLORS = {
  receive: 5,
  parse: 5,
  queue: 2,
  input: 4,
  model: 1,
  output: 3,
  respond: 5,
  serialise: 5,
  first_response: 1,
  stream: 3,
  steps: 1,
  cache: 6,
  engine_queue: 2,
  prefill: 4,
  decode: 1,
};

export function waterfall(table) {
  const whole = Math.max(1, table.duration_us || 0);
  const lanes = [];
  const add = (entry, depth) => {
    if (depth || entry.steps)
      lanes.push(lane(entry.model, entry.start_us || 0, entry.duration_us || 0, 5, depth, true));
    for (const phase of entry.phases || [])
      lanes.push(
        lane(phase.name.replace("_", " "), phase.start_us, phase.duration_us, COLORS[phase.name] || 5, depth + 1),
      );
    for (const step of entry.steps || []) add(step, depth + 1);
  };
  const lane = (label, start, duration, color, depth, isModel) => {
    const bar = h(`div.f${color}`);
    bar.style.left = `${Math.min(100, (100 * start) / whole)}%`;
    bar.style.width = `${Math.min(100, (100 * duration) / whole)}%`;
    const name = h("span", {class: isModel ? "name" : "quiet"}, label);
    name.style.paddingLeft = `${Math.max(0, depth - (isModel ? 0 : 1)) * 0.8}rem`;
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
  return h("div", h("div.wf", lanes), h("p.quiet", words.filter(Boolean).join(" · ")));
}
