// The server itself: what it is made of, how full its limits are, its devices, its flags, its log.
import {bytes, clock, count, h, rate, replace, share, span} from "./dom.js";
import {get} from "./api.js";
import {chart} from "./charts.js";
import {logView} from "./log.js";

export async function serverView(main) {
  const charts = [
    chart({title: "Processor of the machine", format: share, least: 1}),
    chart({title: "Memory of the machine in use", format: (value) => bytes(value === null ? null : value * 1048576)}),
    chart({title: "Requests per second, all models", format: rate}),
  ];
  const live = h("div", {class: "stack"});
  const flags = h("section", {class: "card"});
  const lines = h("div");
  replace(main, h("div", {class: "stack"}, h("h1", {}, "Server"), h("div", {class: "cards"}, charts.map((one) => one.node)), live, flags,
    h("section", {}, h("h2", {}, "Log"), lines)));

  async function load() {
    const server = await get("/console/api/server");
    const {times, ...columns} = server.history;
    const line = (name, key, color) => ({name, values: columns[key] || times.map(() => null), color});
    charts[0].set({times, series: [line("CPU", "cpu", 1)]});
    charts[1].set({times, series: [line("Memory", "memory_mib", 1)]});
    charts[2].set({times, series: [line("Answered", "requests_per_s", 1), line("Failed", "failures_per_s", 6)]});
    replace(live, h("div", {class: "cards"}, limits(server.limits), devices(server), versions(server)));
    return server;
  }
  const server = await load();
  showFlags(flags, server.flags);
  const stopLog = await logView(lines, "");
  const timer = setInterval(() => { if (!document.hidden) load().catch(() => {}); }, 10000);
  return () => { clearInterval(timer); stopLog(); };
}

function meter(used, limit, label) {
  const part = limit ? Math.min(1, used / limit) : 0;
  const fill = h("div", {class: part > 0.9 ? "high" : undefined});
  fill.style.width = `${100 * part}%`;
  return h("div", {class: "meter", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * part)}, fill);
}

function limits(list) {
  return h("section", {class: "card stack"}, h("h2", {}, "Limits"), list.map((entry) => {
    const show = entry.unit === "bytes" ? bytes : count;
    return h("div", {}, h("div", {class: "spread tight"}, h("span", {}, entry.name),
      h("b", {}, entry.limit === null ? `${show(entry.used)}, no limit` : `${show(entry.used)} of ${show(entry.limit)}`)), meter(entry.used, entry.limit, entry.name), h("code", {class: "sub"}, `--${entry.flag}`));
  }));
}

function devices(server) {
  const machine = h("div", {}, h("div", {class: "spread tight"}, h("span", {}, "Machine"), h("b", {}, `${share(server.cpu)} CPU, ${bytes(server.memory)} of ${bytes(server.memory_total)}`)),
    server.memory_total && meter(server.memory, server.memory_total, "Memory of the machine"));
  return h("section", {class: "card stack"}, h("h2", {}, "Devices"), machine, server.devices.map((device) => h("div", {},
    h("div", {class: "spread tight"}, h("span", {}, h("b", {}, device.label), " ", device.name, device.is_simulated && h("span", {class: "quiet"}, " simulated")),
      h("b", {}, [device.utilization !== null && share(device.utilization), device.memory_total_bytes && `${bytes(device.memory_used_bytes)} of ${bytes(device.memory_total_bytes)}`, device.power_watts !== null && `${Math.round(device.power_watts)} W`].filter(Boolean).join(", "))),
    device.memory_total_bytes && meter(device.memory_used_bytes || 0, device.memory_total_bytes, `Memory of ${device.label}`))),
  server.devices.length ? null : h("p", {class: "quiet"}, "No accelerators."));
}

function versions(server) {
  return h("section", {class: "card"}, h("h2", {}, "Versions"), h("p", {class: "quiet"}, `Up for ${span(server.uptime_s)}, since ${clock(server.started_s)}. The console has taken ${server.sampler_s.toFixed(2)} s of processor time.`),
    h("table", {"aria-label": "Versions"}, h("tbody", {}, server.versions.map(([name, version]) => h("tr", {}, h("th", {scope: "row"}, name), h("td", {class: "n wrap"}, version))))));
}

function showFlags(card, flags) {
  const filter = h("input", {type: "search", placeholder: "Filter flags", "aria-label": "Filter flags", oninput: () => draw()});
  const all = h("input", {type: "checkbox", onchange: () => draw()});
  const body = h("tbody");
  replace(card, h("div", {class: "spread"}, h("h2", {}, "Flags in force"), h("div", {class: "row"}, filter, h("label", {}, all, " Defaults too"))),
    h("div", {class: "scroll"}, h("table", {"aria-label": "Flags in force"}, h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Flag"), h("th", {scope: "col"}, "Value"), h("th", {scope: "col", class: "medium"}, "What it does"))), body)));
  function draw() {
    const wanted = filter.value.toLowerCase();
    const shown = flags.filter((flag) => (all.checked || flag.is_given || wanted) && `${flag.flag} ${flag.help}`.toLowerCase().includes(wanted));
    replace(body, shown.map((flag) => h("tr", {}, h("td", {}, h("code", {}, `--${flag.flag}`)), h("td", {class: "mono"}, flag.value, flag.is_given ? null : h("span", {class: "mark default"}, "default")), h("td", {class: "quiet medium"}, flag.help))));
    if (!shown.length) replace(body, h("tr", {}, h("td", {colspan: 3, class: "quiet"}, wanted ? "No flag fits." : "No flag was given.")));
  }
  draw();
}
