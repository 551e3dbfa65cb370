// The last hour of a model as charts, the life of its workers, the steps of an ensemble, its inputs and outputs.
import {bytes, clock, count, h, isNone, rate, replace, share, span, time} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {chart} from "../parts/charts.js";
import {ensembleGraph} from "../parts/graph.js";
import {table} from "../parts/tables.js";
import {shapeText} from "../parts/tensors.js";

const REFRESH_MS = 10000;
const MOST_EVENTS = 20;
const digits = (places) => (value) => (isNone(value) ? "–" : value.toFixed(places));
const cores = (value) => (isNone(value) ? "–" : String(Number(value.toFixed(3))));
const mebibytes = (value) => bytes(isNone(value) ? value : value * 1048576);

// Each with its series: name, column of the history, colour. Of a language model, whose engine has phases and batches
// of its own, those of the executions would tell nothing.
const CHARTS = [
  [
    {title: "Throughput, requests per second", format: rate, least: 1},
    ["Answered", "requests_per_s", 1],
    ["Failed", "failures_per_s", 6],
  ],
  [
    {title: "Mean time of an answer by phase", format: time, isStacked: true},
    ["Queue", "engine_queue_us", 2],
    ["Prefill", "prefill_us", 4],
    ["Decode", "decode_us", 1],
  ],
  [{title: "Time to the first token", format: time}, ["Mean", "first_token_us", 1]],
  [{title: "Tokens per second, of answers that ended", format: rate, least: 1}, ["Written", "tokens_per_s", 1]],
  [
    {title: "Mean latency by phase", format: time, isStacked: true, isOfExecutions: true},
    ["Queue", "queue_us", 2],
    ["Input", "input_us", 4],
    ["Model", "infer_us", 1],
    ["Output", "output_us", 3],
    ["Rest", "other_us", 5],
  ],
  [{title: "Latency, median and 99th percentile", format: time}, ["p50", "p50_us", 1], ["p99", "p99_us", 2]],
  [{title: "Rows per execution", format: digits(1), least: 2, isOfExecutions: true}, ["Mean", "batch_size", 1]],
  [{title: "Requests in the queue", format: count, least: 4}, ["Waiting", "pending", 1]],
  [{title: "Processor of its workers, cores", format: cores, least: 0.1}, ["Cores", "cpu", 1]],
  [{title: "Memory of its workers", format: mebibytes}, ["Resident", "memory_mib", 1]],
];
const WORKER_WORDS = {
  restarted: "Started again",
  exited: "Ended by itself",
  killed: "Was killed",
  out_of_memory: "Ran out of memory",
  misbehaved: "Sent what is no use and was ended",
  not_started: "Could not be started",
};

const NOT_YET = "Charts appear here when the model has been loaded for some seconds.";
const FAILED = "The model failed to load, so there are no charts of it. Why stands above.";

export async function overviewView(body, {address, detail}) {
  const charts = CHARTS.map(([options, ...series]) => [chart(options), series, options.isOfExecutions]);
  const devices = Object.keys(detail.devices || {}).map((label) => [
    label,
    chart({title: `${label}, share of time busy`, format: share, least: 1}),
  ]);
  const events = h("div");
  const empty = h("p", {class: "quiet"});
  const graph = h("div", {class: "graph"});
  const isEnsemble = detail.serving && detail.serving.is_ensemble;
  const nodes = [...charts, ...devices.map(([, one]) => [one])].map(([one]) => one.node);
  replace(
    body,
    h(
      "div",
      {class: "stack"},
      isEnsemble ? h("section", {class: "card"}, h("h2", {}, "Steps"), graph) : null,
      h("div", {class: "cards"}, nodes),
      empty,
      events,
      about(detail),
    ),
  );
  const draw = (found) => {
    empty.hidden = drawCharts(charts, devices, found);
    empty.textContent = hasFailed(found) ? FAILED : NOT_YET;
    replace(events, workers(found.events));
    if (isEnsemble && found.serving) replace(graph, ensembleGraph(found.serving));
  };
  draw(detail);
  const timer = setInterval(() => {
    if (!document.hidden) get(address).then(draw, () => {}); // the line above says when the server does not answer
  }, REFRESH_MS);
  return () => {
    clearInterval(timer);
    for (const [one] of charts) one.stop();
    for (const [, one] of devices) one.stop();
  };
}

function hasFailed({state, reason}) {
  return state === "UNAVAILABLE" && reason && reason !== "unloaded";
}

// A chart of nothing is left out, as those of workers are where a model has none. Returns whether there are any.
function drawCharts(charts, devices, detail) {
  const {times = [], ...columns} = detail.history;
  const nothing = times.map(() => null);
  const events = detail.events
    .filter((event) => event.reason !== "restarted")
    .map((event) => ({time_s: event.time_s, text: `${event.instance}: ${event.reason}`}));
  for (const [one, series, isOfExecutions] of charts) {
    const lines = series.map(([name, key, color]) => ({name, values: columns[key] || nothing, color}));
    one.set({times, series: lines, events, eventName: "a worker failed"});
    const isOfWorkers = series.some(([, key]) => key === "cpu" || key === "memory_mib");
    const isKnown = lines.some(({values}) => values.some((value) => (isOfWorkers ? value : value !== null)));
    one.node.hidden = !isKnown || (isOfExecutions && columns.prefill_us !== undefined);
  }
  for (const [label, one] of devices) {
    const found = (detail.devices || {})[label] || {};
    one.set({times, series: [{name: "Busy", values: found.utilization || nothing, color: 1}]});
  }
  return charts.some(([one]) => !one.node.hidden);
}

function workers(events) {
  if (!events.length) return null;
  const line = ({time_s: at, instance, reason, text}) => [
    clock(at),
    instance,
    h("span", {class: reason === "restarted" ? undefined : "some-bad"}, WORKER_WORDS[reason] || reason),
    text,
  ];
  const lines = events.slice(-MOST_EVENTS).reverse().map(line);
  const heads = ["Time", "Instance", "What happened", "How"];
  return h("section", {class: "card"}, h("h2", {}, "Workers"), table("Workers", heads, lines));
}

function about(detail) {
  const {serving} = detail;
  if (!serving) return null;
  const tensor = (entry) => [
    h("span", {class: "mono"}, entry.name, entry.optional && h("span", {class: "quiet"}, " optional")),
    entry.datatype,
    h("span", {class: "mono"}, shapeText(entry, serving)),
  ];
  const tensors = (title, list) => table(title, [title, "Type", "Shape"], list.map(tensor));
  const facts = [
    `Backend ${serving.backend}`,
    serving.is_decoupled && "streams its responses",
    serving.is_sequence && "sequences",
    serving.max_batch_size && `batches of up to ${serving.max_batch_size}`,
    `loaded at ${clock(serving.loaded_s)} in ${span(Math.max(1, serving.load_seconds))}`,
    detail.folder,
  ];
  return h(
    "section",
    {class: "card"},
    h("h2", {}, "About"),
    h("p", {class: "quiet"}, facts.filter(Boolean).join(" · ")),
    h("div", {class: "two"}, tensors("Input", serving.inputs), tensors("Output", serving.outputs)),
  );
}
