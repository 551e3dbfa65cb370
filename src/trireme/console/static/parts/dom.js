// Elements, and numbers as people read them. What a model says becomes a text node: nothing here parses markup.
const SVG = "http://www.w3.org/2000/svg";

function make(element, classes, [first, ...rest]) {
	const hasProps = first?.constructor === Object;
	for (const [name, value] of Object.entries(hasProps ? first : {})) {
		if (isLeftOut(value)) continue;
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (name === "class") classes.push(value);
		else if (name === "data") Object.assign(element.dataset, value);
		else if (name === "value") element.value = value;
		else element.setAttribute(name === "label" ? "aria-label" : name, value === true ? "" : value);
	}
	if (classes.length) element.setAttribute("class", classes.join(" "));
	put(element, hasProps ? rest : [first, ...rest]);
	return element;
}

const isLeftOut = (value) => (value ?? false) === false;

function put(element, children) {
	element.append(...children.flat(Infinity).filter((child) => !isLeftOut(child)));
}

const maker =
	(create) =>
	(words, ...given) => {
		const [tag, ...classes] = words.split(".");
		return make(create(tag), classes, given);
	};
export const h = maker((tag) => document.createElement(tag));
export const s = maker((tag) => document.createElementNS(SVG, tag));
export const button = (label, onclick, more) => h("button", {type: "button", onclick, ...more}, label);
export const form = (words, submit, ...inner) => {
	const onsubmit = (event) => {
		event.preventDefault();
		submit();
	};
	return h(words, {onsubmit}, inner);
};
export const option = ([value, text = value]) => h("option", {value}, text);
export const choice = (label, options, onchange) => h("select", {label, onchange}, options.map(option));
// Its inner part is made when it is first opened.
export const opened = (words, title, make) => {
	const ontoggle = ({target}) => target.children.length > 1 || target.append(make());
	return h(words, {ontoggle}, title);
};
export const tick = (more) => h("input", {type: "checkbox", ...more});
export const numberField = (label, more) => h("input.narrow", {type: "number", label, ...more});
export const note = (...inner) => h("p.quiet", inner);
export const joined = (parts, between = " · ") => parts.filter(Boolean).join(between);
export const card = (title, ...inner) => h("section.card", h("h2", title), inner);

export function table(label, heads, lines, numbersFrom = heads.length) {
	const kind = (at) => at >= numbersFrom && "n";
	const head = heads.map((text, at) => h("th", {scope: "col", class: kind(at)}, text));
	const cell = (content, at) => h("td", {class: kind(at)}, content);
	const body = lines.map((line) => h("tr", line.map(cell)));
	const node = h("table", h("thead", h("tr", head)), h("tbody", body));
	return h("div.scroll", {tabindex: "0", role: "region", label}, node);
}

export function replace(element, ...children) {
	element.textContent = "";
	put(element, children);
	return element;
}

export function setText(node, text) {
	if (node.textContent !== text) node.textContent = text;
}

// The same text is read out again, as a node of its own.
export const announce = (text) => replace(document.getElementById("announce"), text);

export const setAttribute = (node, name, value) =>
	value ? node.setAttribute(name, value) : node.removeAttribute(name);

export const failed = (error) => h("p.notice.bad", {role: "alert"}, advised(error));

// A key that lacks a group: how to come by one that has it.
export function advised({message: text, status}) {
	const pattern = /is not allowed to use '([a-z-]+)' \(its groups: ([a-z, -]*)\)$/;
	const [, group, held] = (status === 403 && pattern.exec(text)) || [];
	const groups = [...new Set(["statistics", ...(held?.split(", ") || []), group])].join();
	return group ? `${text}. A key that is: trireme keys new FILE NAME --groups ${groups} (FILE as in --api-keys)` : text;
}

const isNone = (value) => isLeftOut(value) || Number.isNaN(value);
export const known = (format) => (value) => (isNone(value) ? "–" : format(value));

export const count = known((value) => {
	if (value >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
	if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
	if (value >= 1e5) return `${(value / 1e3).toFixed(0)} k`;
	return Math.round(value).toLocaleString("en");
});

export const rate = known((value) => {
	if (value === 0) return "0";
	return value < 10 ? value.toFixed(value < 0.1 ? 2 : 1) : count(value);
});

export const time = known((us) => {
	if (us === 0) return "0";
	if (us < 1000) return `${us.toFixed(us < 10 ? 1 : 0)} µs`;
	if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0)} ms`;
	return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
});

export const bytes = known((value) => {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let at = 0;
	for (; value >= 1024 && at < units.length - 1; at += 1) value /= 1024;
	return `${value.toFixed(at === 0 || value >= 100 ? 0 : 1)} ${units[at]}`;
});

export const mebibytes = known((value) => bytes(value * 1048576));
export const share = known((value) => `${(value * 100).toFixed(0)} %`);

export function span(seconds) {
	const parts = Object.entries({d: 86400, h: 3600, min: 60, s: 1}).map(([unit, size]) => {
		const whole = Math.floor(seconds / size);
		seconds %= size;
		return whole && `${whole} ${unit}`;
	});
	const from = parts.findIndex(Boolean);
	return joined(parts.slice(from, from + 2), " ") || "0 s";
}

export const clock = (seconds, timeStyle = "medium") =>
	new Date(seconds * 1000).toLocaleTimeString([], {timeStyle, hourCycle: "h23"});

const LOOKS = {READY: "good", DEGRADED: "warn", LOADING: "busy", UNLOADING: "busy", UNAVAILABLE: "bad"};

export function stateOf({state, reason}) {
	if (state === "UNAVAILABLE" && reason === "unloaded") return ["off", "Unloaded"];
	return [LOOKS[state] || "off", state[0] + state.slice(1).toLowerCase()];
}

export function badge(row) {
	const [kind, word] = stateOf(row);
	return h(`span.state.${kind}`, {title: row.reason || undefined}, word);
}

export const problemOf = ({reason}) => (reason && reason !== "unloaded" ? reason : "");

export const search = (label, oninput, more) =>
	h("input", {type: "search", placeholder: label, label, oninput, ...more});

export function copyButton(text) {
	const node = button("Copy", copy, {class: "small"});
	async function copy() {
		try {
			await navigator.clipboard.writeText(text());
			setText(node, "Copied");
		} catch {
			setText(node, "Select the text to copy it");
		}
		setTimeout(() => setText(node, "Copy"), 1500);
	}
	return node;
}

export function saveFile(name, body) {
	const address = URL.createObjectURL(new Blob([body]));
	h("a", {href: address, download: name}).click();
	setTimeout(() => URL.revokeObjectURL(address), 60000); // the browser may still ask where to put it
}

export function confirmed(title, text, action) {
	return new Promise((resolve) => {
		const no = button("Cancel", () => dialog.close(""), {autofocus: true});
		const yes = button(action, () => dialog.close("yes"), {class: "main"});
		const onclose = () => resolve(dialog.returnValue === "yes");
		const dialog = modal(title, {onclose}, h("p", text), h("div.row.end", no, yes));
	});
}

export function modal(title, props, ...inner) {
	const dialog = h("dialog", {"aria-labelledby": "ask", ...props}, h("h2", {id: "ask"}, title), inner);
	dialog.addEventListener("close", () => dialog.remove());
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}

export function modelLink(name, version, page = "") {
	const path = [name, version || "newest", page].map(encodeURIComponent);
	return `#/model/${joined(path, "/")}`;
}

export const modelPath = (name, version) =>
	encodeURIComponent(name) + (version ? `/versions/${encodeURIComponent(version)}` : "");

// While the page is in sight. What fails is tried again, and the line at the top says why.
export function every(ms, act) {
	let isBusy = false;
	const run = async () => {
		if (document.hidden || isBusy) return;
		isBusy = true;
		await act().catch(() => {});
		isBusy = false;
	};
	const timer = setInterval(run, ms);
	document.addEventListener("visibilitychange", run);
	return () => {
		clearInterval(timer);
		document.removeEventListener("visibilitychange", run);
	};
}

// Addresses of images and sounds hold their data: whoever takes such a node away calls `releaseMedia`.
const forgotten = new FinalizationRegistry((address) => URL.revokeObjectURL(address)); // made when its place was gone

export function mediaNode(data, type) {
	const src = URL.createObjectURL(new Blob([data], {type}));
	const node = type.startsWith("image/")
		? h("img.preview", {src, alt: "Image that the model made"})
		: h("audio", {src, controls: true});
	node.made = src; // or its object may be forgotten before its element
	forgotten.register(node, src);
	return node;
}

export function releaseMedia(node) {
	for (const {made} of node.querySelectorAll("img, audio")) URL.revokeObjectURL(made);
}
