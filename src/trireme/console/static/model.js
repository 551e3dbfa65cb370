// One model: its last hour, trying it, its configuration, statistics and log lines, and its life.
import {announce, badge, bytes, clock, confirmed, count, h, modelLink, rate, replace, share, span, time} from "./dom.js";
import {get, post} from "./api.js";
import {chart} from "./charts.js";
import {listen, rows} from "./live.js";
import {ensembleGraph} from "./graph.js";
import {requestTable} from "./requests.js";

const REFRESH_MS = 10000;
const PHASES = [["queue", "Queue", 2], ["input", "Input", 4], ["infer", "Model", 1], ["output", "Output", 3], ["other", "Rest", 5]];

export async function modelView(main, [name, given = "newest", tab = "overview"]) {
  const version = given === "newest" ? "" : given;
  const address = `/console/api/models/${encodeURIComponent(name)}${version ? `/versions/${version}` : ""}`;
  let detail = await get(address);
  const stops = [];
  const state = h("span");
  const facts = h("div", {class: "cards small"});
  const notice = h("div");
  const actions = h("div", {class: "row"});
  const body = h("div");
  const serving = detail.serving;
  const tabs = [["overview", "Overview"]];
  if (serving) {
    if (serving.is_chat) tabs.push(["chat", "Chat"]);
    tabs.push(["try", "Try it"], ["config", "Configuration"], ["statistics", "Statistics"]);
  }
  tabs.push(["requests", "Requests"], ["log", "Log"]);
  replace(main,
    h("div", {class: "spread"},
      h("div", {}, h("p", {class: "quiet"}, h("a", {href: "#/"}, "Models"), " /"),
        h("div", {class: "row"}, h("h1", {}, name), state, versionChoice(detail, version))),
      actions),
    notice, facts,
    h("nav", {class: "tabs", "aria-label": "About this model"}, tabs.map(([id, label]) =>
      h("a", {href: modelLink(name, version, id), "aria-current": id === tab ? "page" : undefined}, label))),
    body);

  function showRow() {
    const row = [...rows.values()].find((one) => one.name === name && (one.version === detail.version || !detail.version));
    const shown = row || detail;
    replace(state, badge(shown));
    replace(notice, shown.reason && shown.reason !== "unloaded" && h("p", {class: "notice bad", role: "alert"}, shown.reason));
    if (row && row.rps !== undefined) {
      const list = [["Requests/s", rate(row.rps)], ["p50", row.p50 ? time(row.p50) : "–"], ["p99", row.p99 ? time(row.p99) : "–"], ["Queue", count(row.queue)],
        ["Batch", row.batch ? row.batch.toFixed(1) : "–"], ["Errors", count(row.errors)], ["Memory", row.memory ? bytes(row.memory) : "–"],
        ["Instances", !row.instances ? "–" : row.up === row.instances ? String(row.instances) : `${row.up} of ${row.instances}`]];
      if (!facts.children.length) replace(facts, list.map(([label]) => h("dl", {class: "fact"}, h("dt", {}, label), h("dd", {}))));
      list.forEach(([, text], at) => { facts.children[at].querySelector("dd").textContent = text; });
    } else replace(facts);
  }

  function control(label, verb, done, isDanger, question) {
    const button = h("button", {type: "button", class: isDanger ? "danger" : undefined, onclick: async () => {
      if (!await confirmed(`${label} ${name}?`, question, label)) return;
      for (const one of actions.querySelectorAll("button")) one.disabled = true;
      try {
        await post(`/v2/repository/models/${encodeURIComponent(name)}/${verb}`, {});
        announce(`${name} ${done}`);
        location.hash = modelLink(name, "");
        window.dispatchEvent(new HashChangeEvent("hashchange"));
      } catch (error) {
        replace(notice, h("p", {class: "notice bad", role: "alert"}, error.message));
        for (const one of actions.querySelectorAll("button")) one.disabled = false;
      }
    }}, label);
    return button;
  }
  if (detail.can_control) {
    replace(actions, serving
      ? [control("Reload", "load", "was reloaded", false, "Its folder is read again. The present copy serves until the new one is ready."),
        control("Unload", "unload", "was unloaded", true, "It finishes the requests that it has taken, and takes no more.")]
      : control("Load", "load", "was loaded", false, "It is loaded from its folder in the repository."));
  } else actions.append(h("span", {class: "quiet"}, "Start the server with --model-control-mode=explicit to load and unload here."));

  stops.push(listen(showRow));
  showRow();
  const show = {overview, config, statistics, requests, log, try: tryIt, chat}[tab] || overview;
  await show();
  return () => { for (const stop of stops) stop(); };

  function every(work) {
    const timer = setInterval(() => { if (!document.hidden) work().catch(() => {}); }, REFRESH_MS);
    stops.push(() => clearInterval(timer));
  }

  async function overview() {
    const charts = {
      rate: chart({title: "Throughput, requests per second", format: rate, least: 1}),
      latency: chart({title: "Mean latency by phase", format: time, isStacked: true}),
      quantiles: chart({title: "Latency, median and 99th percentile", format: time}),
      batch: chart({title: "Rows per execution", least: 2, format: (value) => value === null || value === undefined ? "–" : value.toFixed(1)}),
      queue: chart({title: "Requests in the queue", format: count, least: 4}),
      cpu: chart({title: "Processor of its workers, cores", format: (value) => value === null || value === undefined ? "–" : value.toFixed(2)}),
      memory: chart({title: "Memory of its workers", format: (value) => bytes(value === null ? null : value * 1048576)}),
    };
    for (const label of Object.keys(detail.devices || {})) charts[label] = chart({title: `${label}, share of time busy`, format: share, least: 1});
    const events = h("div");
    const graph = serving && serving.is_ensemble ? h("section", {class: "card"}, h("h2", {}, "Steps"), h("div", {class: "graph"})) : null;
    replace(body, h("div", {class: "stack"}, graph, h("div", {class: "cards"}, Object.values(charts).map((one) => one.node)), events, about(detail)));
    const draw = () => {
      const {times = [], ...columns} = detail.history;
      const line = (key) => columns[key] || times.map(() => null);
      const set = (one, list) => one.set({times, series: list.map(([label, key, color]) => ({name: label, values: line(key), color})),
        events: detail.events.filter((event) => event.reason !== "restarted").map((event) => ({time_s: event.time_s, text: `${event.instance}: ${event.reason}`})), eventName: "a worker failed"});
      set(charts.rate, [["Answered", "requests_per_s", 1], ["Failed", "failures_per_s", 6]]);
      set(charts.latency, PHASES.map(([key, label, color]) => [label, `${key}_us`, color]));
      set(charts.quantiles, [["p50", "p50_us", 1], ["p99", "p99_us", 2]]);
      set(charts.batch, [["Mean", "batch_size", 1]]);
      set(charts.queue, [["Waiting", "pending", 1]]);
      set(charts.cpu, [["Cores", "cpu", 1]]);
      set(charts.memory, [["Resident", "memory_mib", 1]]);
      for (const [label, found] of Object.entries(detail.devices || {})) if (charts[label]) charts[label].set({times, series: [{name: "Busy", values: found.utilization || times.map(() => null), color: 1}]});
      replace(events, detail.events.length ? h("section", {class: "card"}, h("h2", {}, "Workers"),
        h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, ["Time", "Instance", "What happened"].map((text) => h("th", {scope: "col"}, text)))),
          h("tbody", {}, detail.events.slice().reverse().slice(0, 20).map((event) => h("tr", {}, h("td", {}, clock(event.time_s)), h("td", {}, event.instance),
            h("td", {class: event.reason === "restarted" ? undefined : "some-bad"}, WORKER_WORDS[event.reason] || event.reason))))))) : null);
      if (graph) replace(graph.querySelector(".graph"), ensembleGraph(detail.serving));
    };
    draw();
    every(async () => { detail = await get(address); draw(); });
  }

  async function config() {
    const found = await get(`${address}/config`);
    const only = h("input", {type: "checkbox", id: "defaults", onchange: () => draw()});
    const tree = h("div", {class: "config card scroll"});
    const draw = () => replace(tree, branch(found.config, found.origins, only.checked));
    replace(body, h("div", {class: "spread"},
      h("p", {class: "quiet"}, found.is_file_known ? "What is not marked stands in the model's own file." : "The model has no configuration file: all of it was completed or is a default.",
        h("span", {class: "mark completed"}, "completed"), " was filled in by the server or the backend, ", h("span", {class: "mark default"}, "default"), " was set by nobody."),
      h("label", {}, only, " Show defaults")), tree);
    draw();
  }

  async function statistics() {
    const {model_stats: list} = await get(`/v2/models/${encodeURIComponent(name)}${version ? `/versions/${version}` : ""}/stats`);
    replace(body, h("div", {class: "stack"}, list.map(statisticsOf)));
  }

  async function requests() {
    const load = async () => replace(body, requestTable(await get(`/console/api/requests/${encodeURIComponent(name)}`)));
    await load();
    const again = h("button", {type: "button", class: "small", onclick: load}, "Refresh");
    actions.prepend(again);
  }

  async function log() {
    const view = await import("./log.js");
    stops.push(await view.logView(body, name));
  }

  async function tryIt() {
    const view = await import("./tryit.js");
    stops.push(view.tryView(body, detail) || (() => {}));
  }

  async function chat() {
    const view = await import("./chat.js");
    stops.push(view.chatView(body, detail) || (() => {}));
  }
}

const WORKER_WORDS = {restarted: "Started again", exited: "Ended by itself", killed: "Was killed", out_of_memory: "Ran out of memory",
  misbehaved: "Sent what is no use and was ended", not_started: "Could not be started"};

function versionChoice(detail, version) {
  if (detail.versions.length < 2) return detail.version ? h("span", {class: "quiet"}, `version ${detail.version}`) : null;
  const select = h("select", {"aria-label": "Version", onchange: () => { location.hash = modelLink(detail.name, select.value); }},
    detail.versions.map((one) => h("option", {value: one, selected: one === (version || detail.version)}, `version ${one}`)));
  return select;
}

function about(detail) {
  const {serving} = detail;
  if (!serving) return null;
  const tensors = (title, list) => h("div", {class: "scroll"}, h("table", {"aria-label": title}, h("thead", {}, h("tr", {}, [title, "Type", "Shape"].map((text) => h("th", {scope: "col"}, text)))),
    h("tbody", {}, list.map((entry) => h("tr", {}, h("td", {class: "mono"}, entry.name, entry.optional && h("span", {class: "quiet"}, " optional")), h("td", {}, entry.datatype),
      h("td", {class: "mono"}, shapeText(entry, serving)))))));
  return h("section", {class: "card"}, h("h2", {}, "About"),
    h("p", {class: "quiet"}, [`Backend ${serving.backend}`, serving.is_decoupled && "streams its responses", serving.is_sequence && "sequences", serving.max_batch_size && `batches of up to ${serving.max_batch_size}`,
      `loaded at ${clock(serving.loaded_s)} in ${span(Math.max(1, serving.load_seconds))}`, detail.folder].filter(Boolean).join(" · ")),
    h("div", {class: "two"}, tensors("Input", serving.inputs), tensors("Output", serving.outputs)));
}

export function shapeText(entry, serving) {
  const dims = serving.max_batch_size ? ["batch", ...entry.dims] : entry.dims;
  return `[${dims.map((size) => size === -1 ? "any" : size).join(", ")}]`;
}

function branch(value, origin, showsDefaults) {
  const entries = Array.isArray(value) ? value.map((item, at) => [String(at), item, origin[at]]) : Object.entries(value).map(([key, item]) => [key, item, origin[key]]);
  return h("ul", {}, entries.map(([key, item, from]) => {
    if (!showsDefaults && onlyDefaults(from)) return null;
    const label = h("span", {class: "quiet"}, `${key}: `);
    if (item !== null && typeof item === "object" && (Array.isArray(item) ? item.length : true) && !isPlainList(item)) return h("li", {}, label, branch(item, from, showsDefaults));
    const origins = Array.isArray(from) ? [...new Set(from)] : [from];
    const mark = origins.includes("file") ? null : origins[0] === "completed" || origins[0] === "default" ? h("span", {class: `mark ${origins[0]}`}, origins[0]) : null;
    return h("li", {}, label, typeof item === "string" ? JSON.stringify(item) : JSON.stringify(item), mark);
  }));
}

const isPlainList = (item) => Array.isArray(item) && item.every((one) => one === null || typeof one !== "object");

function onlyDefaults(origin) {
  if (typeof origin === "string") return origin === "default";
  return Object.values(origin || {}).every(onlyDefaults);
}

function statisticsOf(stats) {
  const mean = (entry) => entry.count ? time(entry.ns / entry.count / 1000) : "–";
  const table = (title, heads, lines) => h("div", {class: "scroll sheet"}, h("table", {"aria-label": title}, h("thead", {}, h("tr", {}, heads.map((text, at) => h("th", {scope: "col", class: at ? "n" : undefined}, text)))),
    h("tbody", {}, lines.map((line) => h("tr", {}, line.map((text, at) => h("td", {class: at ? "n" : undefined}, text)))))));
  const phases = Object.entries(stats.inference_stats).map(([key, entry]) => [key.replace("_", " "), count(entry.count), mean(entry), time(entry.ns / 1000)]);
  const batches = stats.batch_stats.map((entry) => [String(entry.batch_size), count(entry.compute_infer.count), mean(entry.compute_input), mean(entry.compute_infer), mean(entry.compute_output)]);
  const engine = Object.entries(stats.engine_stats || {}).map(([key, entry]) => [key.replaceAll("_", " "), count(entry.count), mean(entry)]);
  return h("section", {class: "stack"}, h("h2", {}, `Version ${stats.version}: ${count(stats.inference_count)} inferences in ${count(stats.execution_count)} executions`),
    h("div", {class: "two"}, table("Phases", ["Phase", "Requests", "Mean", "Altogether"], phases),
      batches.length ? table("Batch sizes", ["Batch size", "Executions", "Input", "Model", "Output"], batches) : null),
    engine.length ? table("Measured by the model", ["Measured by the model", "Count", "Mean"], engine) : null);
}
