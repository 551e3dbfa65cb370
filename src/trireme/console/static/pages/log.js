// The last lines of the log, of one model or of the whole server.
import {clock, every, h, note, replace} from "../parts/dom.js";
import {get} from "../parts/api.js";

const EVERY_MS = 2000;
const MOST = 1000;

export async function logView(body, model) {
	const path = `/console/api/log${model ? "/" + encodeURIComponent(model) : ""}`;
	const list = h("div.log.card", {role: "log", label: "Log lines", tabindex: "0"});
	const empty = note(model ? "The log says nothing about this model." : "The log is empty.");
	replace(body, list, empty);
	let last = 0;
	const toEnd = () => (list.scrollTop = list.scrollHeight);
	const appeared = new ResizeObserver(() => {
		if (!list.clientHeight) return;
		toEnd();
		appeared.disconnect();
	});

	async function more() {
		const lines = await get(last ? `${path}/after/${last}` : path);
		if (lines.length) last = lines[lines.length - 1].number;
		const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
		list.append(...lines.map(lineNode));
		while (list.children.length > MOST) list.firstChild.remove();
		empty.hidden = list.children.length > 0;
		list.hidden = !empty.hidden;
		if (isAtEnd) toEnd();
	}
	await more();
	appeared.observe(list);
	const rest = every(EVERY_MS, more);
	return () => {
		rest();
		appeared.disconnect();
	};
}

function lineNode({level, text, time_s: at}) {
	const look = {class: `${level}${text.startsWith("\n+--") ? " table" : ""}`};
	return h("div", look, `${clock(at)} ${level[0]} ${text}`);
}
