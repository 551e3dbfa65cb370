// The description of the HTTP API, as the server itself writes it at /openapi.json.
import {h, replace} from "../parts/dom.js";
import {get} from "../parts/api.js";

const ORDER = ["inference", "openai", "metadata", "model-config", "statistics", "model-repository", "health"];
const rank = ([tag]) => (ORDER.includes(tag) ? ORDER.indexOf(tag) : ORDER.length);

export async function apiView(main) {
  const document = await get("/openapi.json");
  const filter = h("input", {
    type: "search",
    placeholder: "Filter by path",
    "aria-label": "Filter by path",
    oninput: () => draw(),
  });
  const body = h("div", {class: "stack"});
  const {title, description} = document.info;
  const file = h("a", {class: "button", href: "/openapi.json", download: "openapi.json"}, "openapi.json");
  const head = h("div", {}, h("h1", {}, title), h("p", {class: "quiet"}, description));
  replace(main, h("div", {class: "spread"}, head, h("div", {class: "row"}, filter, file)), body);

  function draw() {
    const groups = [...grouped(document, filter.value)].sort((left, right) => rank(left) - rank(right));
    const nodes = (list) => list.map((entry) => operationNode(document, ...entry));
    replace(
      body,
      groups.map(([tag, list]) => h("section", {}, h("h2", {}, tag), h("div", {class: "sheet"}, nodes(list)))),
    );
  }
  draw();
  return null;
}

function grouped(document, wanted) {
  const groups = new Map();
  for (const [path, item] of Object.entries(document.paths)) {
    if (!path.includes(wanted)) continue;
    for (const [method, operation] of Object.entries(item)) {
      const [tag] = operation.tags;
      groups.set(tag, [...(groups.get(tag) || []), [path, method, operation]]);
    }
  }
  return groups;
}

function operationNode(document, path, method, operation) {
  const {summary, description, parameters = [], requestBody, responses} = operation;
  const words = h(
    "summary",
    {class: "row"},
    h("span", {class: `method ${method}`}, method.toUpperCase()),
    h("code", {}, path),
    h("span", {class: "quiet"}, summary),
  );
  const bodies = Object.entries((requestBody && requestBody.content) || {}).map(([type, {schema}]) =>
    h("div", {}, h("h3", {}, `Body, ${type}`), schemaNode(document, schema)),
  );
  const answers = Object.entries(responses).map(([status, answer]) => [
    h("h3", {}, `${status}: ${answer.description}`),
    Object.entries(answer.content || {}).map(([type, {schema}]) => [
      h("p", {class: "quiet"}, type),
      schemaNode(document, schema),
    ]),
  ]);
  const inner = [description && h("p", {}, description), parameterNode(parameters), bodies];
  const said = answers.map((parts) => h("div", {}, parts));
  return h("details", {class: "entry"}, words, h("div", {class: "stack inner"}, inner, said));
}

function parameterNode(parameters) {
  if (!parameters.length) return null;
  const lines = parameters.map((entry) => fieldLine(entry.name, false, entry.in, entry.description));
  return h("div", {}, h("h3", {}, "Parameters"), h("table", {}, h("tbody", {}, lines)));
}

function schemaNode(document, schema) {
  const found = resolve(document, schema);
  const fields = Object.entries(found.properties || {});
  if (!fields.length) return h("p", {class: "quiet"}, found.description || typeText(document, schema));
  const required = found.required || [];
  const lines = fields.map(([name, inner]) =>
    fieldLine(name, required.includes(name), typeText(document, inner), resolve(document, inner).description),
  );
  return h("div", {class: "scroll"}, h("table", {}, h("tbody", {}, lines)));
}

function fieldLine(name, isRequired, kind, description) {
  const star = isRequired && h("span", {class: "some-bad", title: "required"}, " *");
  const label = h("td", {class: "mono"}, name, star);
  return h("tr", {}, label, h("td", {class: "quiet"}, kind), h("td", {}, description || ""));
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
