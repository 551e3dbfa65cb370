// Which view is shown: the part of the address behind #, and the line of vital signs above it.
import {h, replace, share, span} from "./dom.js";
import {follow, listen, live} from "./live.js";
import {modelsView} from "./models.js";

const main = document.getElementById("main");
const lazy = (file, name) => async (...given) => (await import(file))[name](...given);
const VIEWS = {
  models: modelsView,
  model: lazy("./model.js", "modelView"),
  requests: lazy("./requests.js", "requestsView"),
  server: lazy("./server.js", "serverView"),
  api: lazy("./apidoc.js", "apiView"),
};
let leave = null;
let shown = 0;

async function show() {
  const number = ++shown;
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const page = parts[0] || "models";
  if (leave) leave();
  leave = null;
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.dataset.page === page || (page === "model" && link.dataset.page === "models");
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = page === "model" ? `${parts[1]} · Trireme` : `${page[0].toUpperCase()}${page.slice(1)} · Trireme`;
  const view = VIEWS[page];
  if (!view) {
    replace(main, h("h1", {}, "There is no such page"), h("p", {}, h("a", {href: "#/"}, "All models")));
    return;
  }
  try {
    const stop = await view(main, parts.slice(1));
    if (number === shown) leave = stop; else if (stop) stop();
  } catch (error) {
    if (number === shown) replace(main, h("p", {class: "notice bad", role: "alert"}, error.message), h("p", {}, h("a", {href: "#/"}, "All models")));
  }
}

function vitals() {
  const {server, isConnected, problem} = live;
  replace(document.getElementById("vitals"),
    h("span", {}, h("span", {class: "dot " + (isConnected ? "good" : "bad")}), isConnected ? "Live" : problem || "Connecting…"),
    server && h("span", {}, "Up ", h("b", {}, span(server.uptime_s))),
    server && server.cpu !== null && h("span", {}, "CPU ", h("b", {}, share(server.cpu))),
    server && server.memory_total && h("span", {}, "Memory ", h("b", {}, share(server.memory / server.memory_total))),
    server && server.devices.filter((device) => device.utilization !== null).slice(0, 4).map((device) => h("span", {}, device.label, " ", h("b", {}, share(device.utilization)))));
}

document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { show(); main.focus({preventScroll: true}); window.scrollTo(0, 0); });
listen(vitals);
vitals();
show();
follow();
