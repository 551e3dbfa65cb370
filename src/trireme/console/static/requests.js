// The slowest and the failed requests of the last minutes, each with its waterfall.
import {clock, count, h, modelLink, replace, time} from "./dom.js";
import {get} from "./api.js";
import {waterfall} from "./waterfall.js";

const REASONS = {REFUSED: "Refused", REJECTED: "Rejected", CANCELED: "Cancelled", BACKEND: "Failed in the model", OTHER: "Failed"};

export async function requestsView(main) {
  const body = h("div");
  const load = async () => replace(body, requestTable(await get("/console/api/requests")));
  const again = h("button", {type: "button", onclick: load}, "Refresh");
  replace(main, h("div", {class: "spread"}, h("h1", {}, "Requests"), again), body);
  await load();
  return null;
}

export function requestTable({minutes, slowest, failed}) {
  const list = (title, entries, empty, isFailed) => h("section", {class: "stack"}, h("h2", {}, title),
    entries.length ? h("div", {class: "sheet"}, (isFailed ? alike(entries) : entries.map((entry) => [entry])).map((group) => line(group, isFailed))) : h("p", {class: "quiet"}, empty));
  return h("div", {class: "stack"},
    h("p", {class: "quiet"}, `The five slowest of each minute and model, and the last failures, of the last ${minutes} minutes. What was in a request is not kept.`),
    list("Failed", failed, "No request has failed.", true), list("Slowest", slowest, "No request was answered.", false));
}

// What fails in the same way again and again is one line, the last time it happened.
function alike(entries) {
  const groups = new Map();
  for (const entry of entries) {
    const key = JSON.stringify([entry.model, entry.reason, entry.message]);
    groups.set(key, [...(groups.get(key) || []), entry]);
  }
  return [...groups.values()];
}

function line(group, isFailed) {
  const [entry] = group;
  const details = h("details", {class: "entry"}, h("summary", {class: "row"},
    h("span", {class: "quiet"}, clock(entry.time_s)), entry.total_us ? h("b", {}, time(entry.total_us)) : null, h("span", {class: "name"}, entry.model), entry.version && h("span", {class: "quiet"}, `version ${entry.version}`),
    entry.id && h("span", {class: "mono quiet"}, entry.id), group.length > 1 && h("b", {}, `× ${group.length}`), entry.batch > 1 && h("span", {class: "quiet"}, `${count(entry.batch)} rows`),
    isFailed && h("span", {class: `state ${entry.reason === "CANCELED" ? "off" : "bad"}`}, REASONS[entry.reason] || entry.reason),
    isFailed && entry.message && h("span", {class: "said"}, entry.message.split("\n")[0])));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    details.append(h("div", {class: "stack inner"}, entry.message && h("pre", {class: "code"}, entry.message), group.length > 1 && h("p", {class: "quiet"}, `At ${group.slice(0, 20).map((one) => clock(one.time_s)).join(", ")}`), entry.total_us ? waterfall(entry.waterfall) : null,
      h("p", {}, h("a", {href: modelLink(entry.model, entry.version)}, "To the model"))));
  });
  return details;
}
