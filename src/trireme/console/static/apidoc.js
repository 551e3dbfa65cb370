// The description of the HTTP API, as the server itself writes it at /openapi.json.
import {h, replace} from "./dom.js";
import {get} from "./api.js";

const ORDER = ["inference", "openai", "metadata", "model-config", "statistics", "model-repository", "health"];
const rank = ([tag]) => ORDER.includes(tag) ? ORDER.indexOf(tag) : ORDER.length;

export async function apiView(main) {
  const document = await get("/openapi.json");
  const filter = h("input", {type: "search", placeholder: "Filter by path", "aria-label": "Filter by path", oninput: () => draw()});
  const body = h("div", {class: "stack"});
  replace(main, h("div", {class: "spread"}, h("div", {}, h("h1", {}, document.info.title), h("p", {class: "quiet"}, document.info.description)), h("div", {class: "row"}, filter, h("a", {class: "button", href: "/openapi.json", download: "openapi.json"}, "openapi.json"))), body);

  function draw() {
    const groups = new Map();
    for (const [path, item] of Object.entries(document.paths)) for (const [method, operation] of Object.entries(item)) {
      if (!path.includes(filter.value)) continue;
      const tag = operation.tags[0];
      groups.set(tag, [...(groups.get(tag) || []), [path, method, operation]]);
    }
    replace(body, [...groups].sort((left, right) => rank(left) - rank(right)).map(([tag, list]) => h("section", {}, h("h2", {}, tag), h("div", {class: "sheet"}, list.map((entry) => operationNode(document, ...entry))))));
  }
  draw();
  return null;
}

function operationNode(document, path, method, operation) {
  const fields = (schema) => {
    const found = resolve(document, schema);
    const names = Object.entries(found.properties || {});
    return names.length ? h("div", {class: "scroll"}, h("table", {}, h("tbody", {}, names.map(([name, inner]) => h("tr", {}, h("td", {class: "mono"}, name, (found.required || []).includes(name) && h("span", {class: "some-bad", title: "required"}, " *")), h("td", {class: "quiet"}, typeText(document, inner)), h("td", {}, resolve(document, inner).description || "")))))) : h("p", {class: "quiet"}, found.description || typeText(document, schema));
  };
  const content = operation.requestBody && Object.entries(operation.requestBody.content);
  return h("details", {class: "entry"}, h("summary", {class: "row"}, h("span", {class: `method ${method}`}, method.toUpperCase()), h("code", {}, path), h("span", {class: "quiet"}, operation.summary)),
    h("div", {class: "stack inner"}, operation.description && h("p", {}, operation.description),
      (operation.parameters || []).length ? h("div", {}, h("h3", {}, "Parameters"), h("table", {}, h("tbody", {}, operation.parameters.map((entry) => h("tr", {}, h("td", {class: "mono"}, entry.name), h("td", {class: "quiet"}, entry.in), h("td", {}, entry.description || "")))))) : null,
      content ? content.map(([type, {schema}]) => h("div", {}, h("h3", {}, `Body, ${type}`), fields(schema))) : null,
      Object.entries(operation.responses).map(([status, answer]) => h("div", {}, h("h3", {}, `${status}: ${answer.description}`), Object.entries(answer.content || {}).map(([type, {schema}]) => h("div", {}, h("p", {class: "quiet"}, type), fields(schema)))))));
}

function resolve(document, schema) {
  if (!schema || !schema.$ref) return schema || {};
  return document.components.schemas[schema.$ref.split("/").pop()] || {};
}

function typeText(document, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.type === "array") return `list of ${typeText(document, schema.items || {})}`;
  if (schema.oneOf) return schema.oneOf.map((one) => typeText(document, one)).join(" or ");
  return schema.type || "anything";
}
