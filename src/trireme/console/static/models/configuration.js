// The configuration of a model as a tree, with what was completed or defaulted marked.
import {h, replace} from "../parts/dom.js";
import {get} from "../parts/api.js";

const FROM_FILE = "What is not marked stands in the model's own file.";
const NO_FILE = "The model has no configuration file: all of it was completed or is a default.";
const NOT_SERVING = "The model does not serve. This is its own file, which nothing has been added to.";
const NOTHING_WRITTEN = "The model does not serve, and its folder has no configuration file.";

export async function configurationView(body, {address}) {
  const found = await get(`${address}/config`);
  if (found.text !== undefined) {
    const file = found.text ? h("pre", {class: "code", tabindex: "0"}, found.text) : null;
    replace(body, h("p", {class: "quiet"}, file ? NOT_SERVING : NOTHING_WRITTEN), file);
    return null;
  }
  const all = h("input", {type: "checkbox", id: "defaults", onchange: () => draw()});
  const tree = h("div", {class: "config card scroll"});
  const draw = () => replace(tree, branch(found.config, found.origins, all.checked));
  const words = h(
    "p",
    {class: "quiet"},
    found.is_file_known ? FROM_FILE : NO_FILE,
    mark("completed"),
    " was filled in by the server or the backend, ",
    mark("default"),
    " was set by nobody.",
  );
  replace(body, h("div", {class: "spread"}, words, h("label", {}, all, " Show defaults")), tree);
  draw();
  return null;
}

const mark = (origin) => h("span", {class: `mark ${origin}`}, origin);

function branch(value, origin, showsDefaults) {
  const entries = Object.entries(value).filter(([key]) => showsDefaults || !isDefault(origin[key]));
  return h(
    "ul",
    {},
    entries.map(([key, item]) => {
      const label = h("span", {class: "quiet"}, `${key}: `);
      if (isBranch(item)) return h("li", {}, label, branch(item, origin[key], showsDefaults));
      return h("li", {}, label, JSON.stringify(item), leafMark(origin[key]));
    }),
  );
}

function leafMark(origin) {
  const origins = Array.isArray(origin) ? origin : [origin];
  return origins.length && !origins.includes("file") ? mark(origins[0]) : null;
}

// Lists of plain values stand on one line.
function isBranch(item) {
  if (item === null || typeof item !== "object") return false;
  return !Array.isArray(item) || item.some((one) => one !== null && typeof one === "object");
}

function isDefault(origin) {
  if (typeof origin === "string") return origin === "default";
  return Object.values(origin || {}).every(isDefault);
}
