// One model: its figures of this moment, its life, and a tab for each thing that there is to know or to do.
import {announce, badge, bytes, confirmed, count, failed, h, modelLink, rate, replace, time} from "../parts/dom.js";
import {get, post} from "../parts/api.js";
import {listen, rows} from "../parts/live.js";
import {releaseMedia} from "../parts/media.js";
import {requestList} from "../pages/requests.js";
import {configurationView} from "./configuration.js";
import {overviewView} from "./overview.js";
import {statisticsView} from "./statistics.js";
import {showFacts} from "./table.js";

// Each takes its place on the page and {name, version, address, detail}, and returns how it is left, or null.
const VIEWS = {
  overview: overviewView,
  chat: async (body, {detail}) => (await import("../trying/chat.js")).chatView(body, detail),
  try: async (body, {detail}) => (await import("../trying/tryit.js")).tryView(body, detail),
  config: configurationView,
  statistics: statisticsView,
  requests: requestsView,
  log: async (body, {name}) => (await import("../pages/log.js")).logView(body, name),
};
const UNCHANGED = "is as it was: nothing in its folder has changed since it was loaded.";
const CONTROL_HINT = "Start the server with --model-control-mode=explicit to load and unload here.";

export async function modelView(main, [name, given = "newest", tab = "overview"]) {
  const version = given === "newest" ? "" : given;
  const place = version ? `/versions/${encodeURIComponent(version)}` : "";
  const address = `/console/api/models/${encodeURIComponent(name)}${place}`;
  const detail = await get(address);
  const head = headOf(detail);
  const body = h("div");
  const actions = h("div", {class: "row"});
  const problem = h("div", {role: "alert"});
  const path = h("p", {class: "quiet"}, h("a", {href: "#/"}, "Models"), " /");
  const title = h("div", {class: "row"}, h("h1", {}, name), head.state, versionChoice(detail));
  const nav = h("nav", {class: "tabs", "aria-label": "About this model"}, tabLinks(detail, version, tab));
  const top = h("div", {class: "spread"}, h("div", {}, path, title), actions);
  replace(main, top, problem, head.notice, head.facts, nav, body);
  replace(actions, controls(detail, actions, problem));
  const stopHead = listen(head.draw);
  head.draw();
  let stopView;
  try {
    stopView = await (VIEWS[tab] || overviewView)(body, {name, version, address, detail});
  } catch (error) {
    replace(body, failed(error));
  }
  return () => {
    stopHead();
    if (stopView) stopView();
  };
}

function tabLinks(detail, version, tab) {
  const {name, serving} = detail;
  const tabs = [["overview", "Overview"]];
  if (serving && serving.is_chat) tabs.push(["chat", "Chat"]);
  if (serving) tabs.push(["try", "Try it"]);
  tabs.push(["config", "Configuration"]);
  if (serving) tabs.push(["statistics", "Statistics"]);
  tabs.push(["requests", "Requests"], ["log", "Log"]);
  return tabs.map(([id, label]) =>
    h("a", {href: modelLink(name, version, id), "aria-current": id === tab ? "page" : undefined}, label),
  );
}

// What changes every second; only what has changed is touched, so that nothing is read out twice.
function headOf(detail) {
  const state = h("span");
  const facts = h("div", {class: "cards small"});
  const notice = h("div");
  let shown = "";
  const isOurs = (one) => one.name === detail.name && (one.version === detail.version || !detail.version);
  const draw = () => {
    const row = [...rows.values()].find(isOurs);
    const {state: word, reason} = row || detail;
    if (shown !== `${word} ${reason}`) {
      shown = `${word} ${reason}`;
      replace(state, badge({state: word, reason}));
      const isProblem = reason && reason !== "unloaded";
      replace(notice, isProblem && h("p", {class: "notice bad", role: "alert"}, reason));
    }
    showFacts(facts, row && row.rps !== undefined ? factsOf(row) : []);
  };
  return {state, facts, notice, draw};
}

function factsOf(row) {
  const all = row.up === row.instances ? String(row.instances) : `${row.up} of ${row.instances}`;
  return [
    ["Requests/s", rate(row.rps)],
    ["p50", row.p50 ? time(row.p50) : "–"],
    ["p99", row.p99 ? time(row.p99) : "–"],
    ["Queue", count(row.queue)],
    ["Batch", row.batch ? row.batch.toFixed(1) : "–"],
    ["Errors", count(row.errors)],
    ["Memory", row.memory ? bytes(row.memory) : "–"],
    ["Instances", row.instances ? all : "–"],
  ];
}

function controls(detail, actions, problem) {
  const {name, serving} = detail;
  if (!detail.can_control) return h("span", {class: "quiet"}, CONTROL_HINT);
  const able = (isAble) => {
    for (const one of actions.querySelectorAll("button")) one.disabled = !isAble;
  };
  const control = (label, verb, done, question) => {
    const act = async () => {
      replace(problem);
      try {
        const before = await copiesOf(name);
        if (!(await confirmed(`${label} ${name}?`, question(before.newest), label))) return;
        able(false);
        await post(`/v2/repository/models/${encodeURIComponent(name)}/${verb}`, {});
        if (serving && verb === "load" && (await copiesOf(name)).key === before.key) {
          replace(problem, h("p", {class: "notice"}, `${name} ${UNCHANGED}`));
          able(true);
          return;
        }
        announce(`${name} ${done}`);
        showAgain(modelLink(name, ""));
      } catch (error) {
        replace(problem, h("p", {class: "notice bad"}, error.message));
        able(true);
      }
    };
    return h("button", {type: "button", class: verb === "unload" ? "danger" : undefined, onclick: act}, label);
  };
  if (!serving) return control("Load", "load", "was loaded", () => "It is loaded from its folder in the repository.");
  const reload = () =>
    "Its folder is read again. Where it has changed, the present copy serves until the new one is ready; " +
    "where it has not, nothing is loaded.";
  const unload = ({ensembles}) =>
    "It finishes the requests that it has taken, and takes no more." +
    (ensembles.length ? ` So do the ensembles that it is a step of: ${ensembles.join(", ")}.` : "");
  return [control("Reload", "load", "was reloaded", reload), control("Unload", "unload", "was unloaded", unload)];
}

// The newest version in detail, and a key that is another one when any version has been loaded again or has gone.
async function copiesOf(name) {
  const address = `/console/api/models/${encodeURIComponent(name)}`;
  const newest = await get(address);
  const all = await Promise.all(newest.versions.map((version) => get(`${address}/versions/${version}`)));
  const copy = ({version, state, serving}) => [version, state, serving && [serving.loaded_s, serving.load_seconds]];
  return {newest, key: JSON.stringify(all.map(copy))};
}

function showAgain(link) {
  if (location.hash === link) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = link;
}

function versionChoice({name, version, versions}) {
  if (versions.length < 2) return version ? h("span", {class: "quiet"}, `version ${version}`) : null;
  const go = () => (location.hash = modelLink(name, select.value));
  const options = versions.map((one) => h("option", {value: one, selected: one === version}, `version ${one}`));
  const select = h("select", {"aria-label": "Version", onchange: go}, options);
  return select;
}

async function requestsView(body, {name}) {
  const list = h("div");
  const again = h("button", {type: "button", class: "small", onclick: () => load()}, "Refresh");
  replace(body, h("div", {class: "row end"}, again), list);
  const load = await requestList(list, `/console/api/requests/${encodeURIComponent(name)}`);
  return () => releaseMedia(list);
}
