// Elements, and numbers as people read them. Whatever a model says becomes a text node: nothing here parses markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export function replace(element, ...children) {
  element.textContent = "";
  put(element, children);
  return element;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function announce(text) {
  document.getElementById("announce").textContent = text;
}

// In the place of what could not be shown.
export const failed = (error) => h("p", {class: "notice bad", role: "alert"}, advised(error.message));

// A key that lacks a group: how to come by one that has it.
export function advised(text) {
  const [, group] = /is not allowed to use '([a-z-]+)'$/.exec(text) || [];
  const groups = [...new Set(["statistics", group])].join();
  return group ? `${text}. A key that is: trireme keys new FILE NAME --groups ${groups} (FILE as in --api-keys)` : text;
}

export const isNone = (value) => value === undefined || value === null || Number.isNaN(value);

export function count(value) {
  if (isNone(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toFixed(2) + " G";
  if (size >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (size >= 1e5) return (value / 1e3).toFixed(0) + " k";
  return Math.round(value).toLocaleString("en");
}

export function rate(value) {
  if (isNone(value)) return "–";
  if (value === 0) return "0";
  if (value < 10) return value.toFixed(value < 0.1 ? 2 : 1);
  return count(value);
}

export function time(us) {
  if (isNone(us)) return "–";
  if (us === 0) return "0";
  if (us < 1000) return us.toFixed(us < 10 ? 1 : 0) + " µs";
  if (us < 1e6) return (us / 1e3).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0) + " ms";
  return (us / 1e6).toFixed(us < 1e7 ? 2 : 1) + " s";
}

export function bytes(value) {
  if (isNone(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return (at === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)) + " " + units[at];
}

export function share(value) {
  return isNone(value) ? "–" : (value * 100).toFixed(0) + " %";
}

export function span(seconds) {
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const from = parts.findIndex(([size]) => seconds >= size);
  if (from < 0) return "0 s";
  const [size, unit] = parts[from];
  const first = `${Math.floor(seconds / size)} ${unit}`;
  const next = parts[from + 1];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return rest ? `${first} ${rest} ${next[1]}` : first;
}

export const clock = (seconds, withSeconds = true) =>
  new Date(seconds * 1000).toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    ...(withSeconds ? {second: "2-digit"} : {}),
    hour12: false,
  });

const STATES = {
  READY: ["good", "Ready"],
  DEGRADED: ["warn", "Degraded"],
  LOADING: ["busy", "Loading"],
  UNLOADING: ["busy", "Unloading"],
  UNAVAILABLE: ["bad", "Unavailable"],
  "NOT LOADED": ["off", "Not loaded"],
  UNKNOWN: ["off", "Unknown"],
};

export function stateOf(row) {
  if (row.state === "UNAVAILABLE" && row.reason === "unloaded") return ["off", "Unloaded"];
  return STATES[row.state] || ["off", row.state];
}

export function badge(row) {
  const [kind, word] = stateOf(row);
  return h("span", {class: "state " + kind, title: row.reason || undefined}, word);
}

export function copyButton(text) {
  const onclick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text to copy it";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  const button = h("button", {type: "button", class: "small", onclick}, "Copy");
  return button;
}

export function confirmed(title, text, action) {
  return new Promise((resolve) => {
    const no = h("button", {type: "button", autofocus: true, onclick: () => dialog.close("")}, "Cancel");
    const yes = h("button", {type: "button", class: "main", onclick: () => dialog.close("yes")}, action);
    const words = [h("h2", {id: "ask"}, title), h("p", {}, text)];
    const dialog = h("dialog", {"aria-labelledby": "ask"}, words, h("div", {class: "row end"}, no, yes));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function modelLink(name, version, page = "") {
  const path = version ? `/${encodeURIComponent(version)}` : "/newest";
  return `#/model/${encodeURIComponent(name)}${path}${page ? "/" + page : ""}`;
}
