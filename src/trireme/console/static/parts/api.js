// Requests to the server, with the API key where one is needed, and streams of events.
import {form, h, modal, note} from "./dom.js";

let key = sessionStorage.getItem("trireme-key") || "";
let asking = null;
const ASCII = "\\s*[!-~]+\\s*"; // which a header can hold
const MOST_MS = 30000; // of what is only read
export const SILENT = "The server does not answer.";

export const hasKey = () => key !== "";
export const isAsking = () => asking !== null;
export let channel; // of windows with this key

export function tune(onmessage) {
	channel?.close();
	channel = onmessage && Object.assign(new BroadcastChannel(`live ${key}`), {onmessage});
}

export async function send(path, options = {}) {
	for (;;) {
		const used = key;
		const headers = {...options.headers, ...(key && {Authorization: `Bearer ${key}`})};
		const signal = options.signal || (options.method ? null : AbortSignal.timeout(MOST_MS));
		const answer = await fetch(path, {...options, signal, headers, cache: "no-store"}).catch((error) => {
			throw error.name === "AbortError" ? error : Object.assign(new Error(SILENT), {isAway: 1});
		});
		if (answer.ok || answer.headers.get("Content-Type")?.includes("event")) return answer; // its errors are events
		if (answer.status !== 401) throw await failure(answer);
		if (used === key) await askForKey();
	}
}

async function failure(answer) {
	const text = await answer.text();
	let message = text || `HTTP ${answer.status}`;
	try {
		const {error} = JSON.parse(text);
		message = error?.message || error || text;
	} catch {} // not JSON: as it is
	return Object.assign(new Error(message), {status: answer.status});
}

export const get = async (path) => (await send(path)).json();

export function post(path, body, options) {
	const headers = {"Content-Type": "application/json"};
	return send(path, {method: "POST", body: JSON.stringify(body), headers, ...options});
}

export async function* events(answer) {
	const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	try {
		for (;;) {
			const {done, value} = await reader.read();
			if (done) return;
			rest += value;
			if (!value.includes("\n")) continue; // in the middle of a long one
			const entries = rest.split("\n\n");
			rest = entries.pop();
			const field = (line) => /^(\w+): (.*)/s.exec(line)?.slice(1) || [];
			for (const entry of entries) yield Object.fromEntries(entry.split("\n").map(field));
		}
	} finally {
		reader.cancel().catch(() => {});
	}
}

export const changeKey = () => askForKey(true);

function askForKey(isAsked) {
	asking ||= new Promise((resolve) => {
		const field = h("input", {type: "password", autocomplete: "off", id: "key", required: true, pattern: ASCII});
		const take = () => {
			key = field.value.trim();
			sessionStorage.setItem("trireme-key", key);
			isAsked || tune();
			dialog.close();
		};
		const isRefused = key && !isAsked;
		const words = isRefused ? "The key was not accepted." : "It stays in this tab and is sent with every request.";
		const label = h("label", {for: "key"}, "API key");
		const go = h("div.row.end", h("button.main", "Continue"));
		const asked = form("form", take, note(words), label, field, go);
		const oncancel = (event) => isAsked || event.preventDefault();
		const onclose = () => {
			asking = null;
			resolve();
		};
		const dialog = modal("This server asks for an API key", {oncancel, onclose}, asked);
	});
	return asking;
}
