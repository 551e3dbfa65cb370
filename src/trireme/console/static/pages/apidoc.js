// The description of the HTTP API, as the server writes it at /openapi.json.
import {button, h, note, replace, saveFile, search} from "../parts/dom.js";
import {get} from "../parts/api.js";

let schemas; // by name

export async function apiView(main) {
	const document = await get("/openapi.json");
	({schemas} = document.components);
	const filter = search("Filter by path", () => draw());
	const body = h("div.stack");
	const {title, description} = document.info;
	const file = button("openapi.json", () => saveFile("openapi.json", JSON.stringify(document, null, 2)));
	const head = h("div", h("h1", title), note(prose(description)));
	replace(main, h("div.spread", head, h("div.row", filter, file)), body);

	function draw() {
		const paths = Object.entries(document.paths).filter(([path]) => path.includes(filter.value));
		const group = ({name}) => {
			const nodes = paths.flatMap(([path, item]) => operations(path, item, name));
			return nodes.length > 0 && h("section", h("h2", name), h("div.sheet", nodes));
		};
		replace(body, document.tags.map(group));
	}
	draw();
}

const prose = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", part) : part));

function operations(path, item, tag) {
	const wanted = Object.entries(item).filter(([, {tags}]) => tags[0] === tag);
	return wanted.map(([method, operation]) => operationNode(path, method, operation));
}

function operationNode(path, method, operation) {
	const {summary, description, parameters = [], requestBody = {}, responses} = operation;
	const verb = h("span", {class: `method ${method}`}, method.toUpperCase());
	const words = h("summary.row", verb, h("code", path), h("span.quiet", prose(summary)));
	const bodies = Object.entries(requestBody.content || {}).map(([type, {schema}]) =>
		h("div", h("h3", `Body, ${type}`), schemaNode(schema)),
	);
	const content = ([type, {schema}]) => [note(type), schemaNode(schema)];
	const said = Object.entries(responses).map(([status, answer]) =>
		h("div", h("h3", `${status}: `, prose(answer.description)), Object.entries(answer.content || {}).map(content)),
	);
	const inner = [description && h("p", prose(description)), parameterNode(parameters), bodies, said];
	return h("details.entry", words, h("div.stack.inner", inner));
}

function parameterNode(parameters) {
	if (!parameters.length) return null;
	const lines = parameters.map((entry) => fieldLine(entry.name, false, entry.in, entry.description));
	return h("div", h("h3", "Parameters"), h("table", h("tbody", lines)));
}

function schemaNode(schema) {
	const lines = fieldLines(schema);
	if (lines.length) return h("div.scroll", h("table", h("tbody", lines)));
	return note(prose(resolve(schema).description || typeText(schema)));
}

function fieldLines(schema, before = "") {
	const {properties = {}, required = []} = resolve(schema);
	return Object.entries(properties).flatMap(([name, inner]) => {
		const path = before + name;
		const line = fieldLine(path, required.includes(name), typeText(inner), resolve(inner).description);
		if (before.split(".").length > 3) return line;
		return [line, ...fieldLines(inner.items || inner, `${path}${inner.items ? "[]" : ""}.`)];
	});
}

function fieldLine(name, isRequired, kind, description) {
	const star = isRequired && h("span.some-bad", {title: "required"}, " *");
	const label = h("td.mono", name, star);
	return h("tr", label, h("td.quiet", kind), h("td", prose(description || "")));
}

function resolve(schema) {
	if (!schema.$ref) return schema;
	return schemas[schema.$ref.split("/").pop()] || {};
}

function typeText({$ref, type, items = {}, oneOf}) {
	if ($ref) return $ref.split("/").pop();
	if (type === "array") return `list of ${typeText(items)}`;
	return oneOf ? oneOf.map(typeText).join(" or ") : type || "anything";
}
