// The table of all models, kept up to date row by row.
import {badge, bytes, count, h, modelLink, rate, replace, setText, stateOf, time} from "./dom.js";
import {idOf, listen, rows} from "./live.js";
import {sparkline} from "./charts.js";

const COLUMNS = [
  {id: "name", label: "Model", sort: (row) => row.name.toLowerCase()},
  {id: "state", label: "State", sort: (row) => stateOf(row)[1]},
  {id: "instances", label: "Instances", n: true, kind: "medium", show: (row) => row.instances === undefined ? "" : !row.instances ? "–" : row.up === row.instances ? String(row.instances) : `${row.up} of ${row.instances}`},
  {id: "device", label: "Device", kind: "wide", show: (row) => row.device || ""},
  {id: "memory", label: "Memory", n: true, kind: "wide", show: (row) => row.memory ? bytes(row.memory) : ""},
  {id: "rps", label: "Requests/s", n: true, show: (row) => rate(row.rps)},
  {id: "spark", label: "10 min", kind: "medium", sort: null},
  {id: "p50", label: "p50", n: true, show: (row) => row.p50 ? time(row.p50) : "–"},
  {id: "p99", label: "p99", n: true, show: (row) => row.p99 ? time(row.p99) : "–"},
  {id: "queue", label: "Queue", n: true, show: (row) => count(row.queue)},
  {id: "batch", label: "Batch", n: true, kind: "medium", show: (row) => row.batch ? row.batch.toFixed(1) : "–"},
  {id: "errors", label: "Errors", n: true, show: (row) => count(row.errors)},
  {id: "total", label: "Requests", n: true, kind: "wide", show: (row) => count(row.total)},
];
const kept = {sort: "name", isDown: false, filter: "", state: ""};

export function modelsView(main) {
  const lines = new Map();
  const byNode = new WeakMap();
  // Of many rows only those are drawn that can be seen, or nearly.
  const watcher = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) {
      const line = byNode.get(target);
      line.isSeen = isIntersecting;
      if (isIntersecting) update(line, line.row);
    }
  }, {rootMargin: "300px"});
  const body = h("tbody");
  const sums = h("div", {class: "cards small"});
  const empty = h("p", {class: "quiet"});
  const filter = h("input", {type: "search", placeholder: "Filter by name, press /", "aria-label": "Filter models by name", value: kept.filter,
    oninput: () => { kept.filter = filter.value; arrange(); }});
  const chosen = h("select", {"aria-label": "Show models in state", onchange: () => { kept.state = chosen.value; arrange(); }});
  const heads = new Map(COLUMNS.map((column) => [column.id, h("th", {scope: "col", class: classes(column)},
    column.sort === null ? column.label : h("button", {type: "button", onclick: () => sortBy(column)}, column.label))]));
  const table = h("table", {class: "fold", "aria-label": "Models"}, h("thead", {}, h("tr", {}, [...heads.values()])), body);
  replace(main, h("div", {class: "spread"}, h("h1", {}, "Models"), h("div", {class: "row"}, filter, chosen)),
    sums, h("div", {class: "sheet scroll"}, table), empty);

  function sortBy(column) {
    const isDown = kept.sort === column.id ? !kept.isDown : Boolean(column.n);
    Object.assign(kept, {sort: column.id, isDown});
    arrange();
  }

  function create(row) {
    const cells = {};
    const spark = sparkline();
    const tr = h("tr", {}, COLUMNS.map((column) => {
      const cell = cells[column.id] = column.id === "name" ? h("th", {scope: "row", class: "head"}) :
        h("td", {class: classes(column), data: column.id === "spark" ? {} : {label: column.label}});
      if (column.id === "spark") cell.append(spark.svg);
      return cell;
    }));
    replace(cells.name, h("div", {}, h("a", {class: "name", href: modelLink(row.name, row.version)}, row.name),
      h("div", {class: "sub"}, [row.version ? `version ${row.version}` : "", row.backend].filter(Boolean).join(" · "))));
    const line = {tr, cells, spark, shown: "", row, isSeen: false};
    byNode.set(tr, line);
    watcher.observe(tr);
    return line;
  }

  function update(line, row) {
    line.row = row;
    const {cells} = line;
    const state = JSON.stringify([row.state, row.reason]);
    if (line.shown !== state) {
      line.shown = state;
      replace(cells.state, badge(row));
    }
    for (const column of COLUMNS) if (column.show) setText(cells[column.id], row.rps === undefined ? "" : column.show(row));
    cells.rps.classList.toggle("zero", !row.rps);
    cells.queue.classList.toggle("zero", !row.queue);
    cells.errors.classList.toggle("zero", !row.errors);
    cells.errors.classList.toggle("some-bad", row.eps > 0);
    line.spark.draw(row.rps === undefined ? [] : [...row.spark, row.rps]);
  }

  function arrange() {
    const wanted = kept.filter.toLowerCase();
    const column = COLUMNS.find((one) => one.id === kept.sort);
    const value = column.sort || ((row) => row[column.id] === undefined ? -1 : row[column.id]);
    const found = [...lines.values()].filter(({row}) => row.name.toLowerCase().includes(wanted) && (!kept.state || stateOf(row)[1] === kept.state));
    found.sort((left, right) => {
      const a = value(left.row);
      const b = value(right.row);
      const order = a < b ? -1 : a > b ? 1 : left.row.name < right.row.name ? -1 : left.row.name > right.row.name ? 1 : Number(left.row.version) - Number(right.row.version);
      return kept.isDown && a !== b ? -order : order;
    });
    for (const [id, head] of heads) {
      if (id === kept.sort) head.setAttribute("aria-sort", kept.isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    const wantedNodes = found.map((line) => line.tr);
    if (wantedNodes.length !== body.children.length || wantedNodes.some((node, at) => body.children[at] !== node)) body.replaceChildren(...wantedNodes);
    setText(empty, found.length ? "" : rows.size ? "No model fits the filter." : "The repository holds no models.");
  }

  function summarize() {
    const all = [...rows.values()];
    const sum = (name) => all.reduce((total, row) => total + (row[name] || 0), 0);
    const ready = all.filter((row) => row.state === "READY" || row.state === "DEGRADED").length;
    const facts = [["Serving", `${ready} of ${all.length}`], ["Requests/s", rate(sum("rps"))], ["In the queue", count(sum("queue"))],
      ["Errors/s", rate(sum("eps"))], ["Worker memory", bytes(sum("memory"))]];
    if (!sums.children.length) replace(sums, facts.map(([name]) => h("dl", {class: "fact"}, h("dt", {}, name), h("dd", {}, ""))));
    facts.forEach(([, text], at) => setText(sums.children[at].querySelector("dd"), text));
    const states = [...new Set(all.map((row) => stateOf(row)[1]))].sort();
    const known = [...chosen.options].slice(1).map((option) => option.value);
    if (!chosen.options.length || states.join() !== known.join()) {
      replace(chosen, h("option", {value: ""}, "All states"), states.map((word) => h("option", {value: word}, word)));
      chosen.value = states.includes(kept.state) ? kept.state : kept.state = "";
    }
  }

  let arrangedAt = 0;
  function refresh(changed) {
    let isNew = false;
    for (const [id, line] of lines) {
      if (!rows.has(id)) { watcher.unobserve(line.tr); line.tr.remove(); lines.delete(id); isNew = true; }
    }
    for (const row of rows.values()) {
      const id = idOf(row);
      let line = lines.get(id);
      if (line && line.row.backend !== row.backend) { line.tr.remove(); lines.delete(id); line = null; }
      if (!line) { line = create(row); lines.set(id, line); isNew = true; }
      else if (changed && !changed.has(id) && line.row === row) continue;
      line.row = row;
      if (line.isSeen || isNew) update(line, row);
    }
    summarize();
    const now = Date.now();
    // Rows that jump while one reads are worse than an order that is some seconds old.
    if (isNew || !changed || (now - arrangedAt > 5000 && !body.contains(document.activeElement))) { arrangedAt = now; arrange(); }
  }

  const slash = (event) => {
    if (event.key === "/" && !/^(input|textarea|select)$/i.test(event.target.tagName)) { event.preventDefault(); filter.focus(); }
  };
  document.addEventListener("keydown", slash);
  const stop = listen(refresh);
  return () => { stop(); watcher.disconnect(); document.removeEventListener("keydown", slash); };
}

const classes = (column) => [column.n ? "n" : "", column.kind || ""].join(" ").trim() || undefined;
