// One model: its figures, its life, and its tabs.
import {
	announce, badge, button, choice, confirmed, failed, h, note,
	modelLink, modelPath, problemOf, replace,
} from "../parts/dom.js";
import {get, post} from "../parts/api.js";
import {listen, live, rows} from "../parts/live.js";
import {logView} from "../pages/server.js";
import {modelRequestsView} from "../pages/requests.js";
import {chatView} from "../trying/chat.js";
import {tryView} from "../trying/tryit.js";
import {configurationView, statisticsView} from "./facts.js";
import {COLUMNS} from "./line.js";
import {overviewView} from "./overview.js";
import {showFacts} from "./table.js";

const VIEWS = {
	overview: overviewView,
	chat: chatView,
	try: tryView,
	config: configurationView,
	statistics: statisticsView,
	requests: modelRequestsView,
	log: (body, {name}) => logView(body, name),
};
const FACTS = ["rps", "p50", "p99", "queue", "batch", "errors", "memory", "instances"];
const UNCHANGED = "is as it was: nothing in its folder has changed since it was loaded.";
const CONTROL_HINT = "Start the server with --model-control-mode=explicit to load and unload here.";
const LOAD = "It is loaded from its folder in the repository.";
const RELOAD =
	"Its folder is read again. Where it has changed, the present copy serves until the new one is ready; " +
	"where it has not, nothing is loaded.";
const UNLOAD = "It finishes the requests that it has taken, and takes no more.";

export async function modelView(main, [name, given = "newest", tab = "overview"]) {
	const version = given === "newest" ? "" : given;
	const address = `/console/api/models/${modelPath(name, version)}`;
	const detail = await get(address);
	const head = headOf(detail, () => change());
	const body = h("div");
	const actions = h("div.row");
	const problem = h("div", {role: "alert"});
	const path = note(h("a", {href: "#/"}, "Models"), " /");
	const title = h("div.row", h("h1", name), head.state, versionChoice(detail));
	const nav = h("nav.tabs", {label: "About this model"}, tabLinks(detail, version, tab));
	replace(main, h("div.spread", h("div", path, title), actions), problem, head.notice, head.facts, nav, body);
	const isThere = Object.hasOwn(VIEWS, tab) && tabsOf(detail)[tab];
	const isKept = isThere && /^(try|chat|requests|log)/.test(tab); // what is filled in, or being read
	const tell = (node) =>
		problem.isConnected ? replace(problem, node) : document.getElementById("main").prepend(node);
	const done = (text) => {
		announce(text);
		if (isKept || !problem.isConnected) tell(h("p.notice", text));
		if (!problem.isConnected) return;
		if (isKept) change();
		else showAgain(modelLink(name, "", tab));
	};
	const control = () => replace(actions, controls(detail, actions, tell, done));
	const change = async () => {
		if (!isKept) return window.dispatchEvent(new Event("again"));
		try {
			Object.assign(detail, {serving: null}, await get(address));
		} catch (error) {
			Object.assign(detail, {serving: null, state: "GONE", reason: ""});
			tell(failed(error));
		}
		replace(nav, tabLinks(detail, version, tab));
		control();
		head.draw();
	};
	control();
	const stopHead = listen(head.draw);
	head.draw();
	let stopView;
	try {
		stopView = await (isThere ? VIEWS[tab] : overviewView)(body, {name, version, address, detail});
	} catch (error) {
		replace(body, failed(error));
		if (error.isAway) {
			stopHead();
			throw error;
		}
	}
	return () => {
		stopHead();
		stopView?.();
	};
}

const tabsOf = ({serving}) => ({
	overview: "Overview",
	chat: serving?.is_chat && "Chat",
	try: serving && "Try it",
	config: "Configuration",
	statistics: serving && "Statistics",
	requests: "Requests",
	log: "Log",
});

function tabLinks(detail, version, tab) {
	const link = ([id, label]) =>
		label && h("a", {href: modelLink(detail.name, version, id), "aria-current": id === tab && "page"}, label);
	return Object.entries(tabsOf(detail)).map(link);
}

function headOf(detail, change) {
	const state = h("span");
	const facts = h("div.cards.small");
	const notice = h("div");
	let shown = "";
	let last; // the copy that was seen last
	const isOurs = (one) => one.name === detail.name && (one.version === detail.version || !detail.version);
	const columns = FACTS.map((id) => COLUMNS.find((column) => column.id === id));
	const draw = () => {
		const row = [...rows.values()].find(isOurs);
		const now = row || detail;
		if (shown !== `${now.state} ${now.reason}`) {
			shown = `${now.state} ${now.reason}`;
			replace(state, badge(now));
			replace(notice, problemOf(now) && h("p.notice.bad", {role: "alert"}, now.reason));
		}
		const isUp = row?.rps !== undefined;
		const fact = ({id, label, show}) => [label, show(row[id], row) || "–"];
		showFacts(facts, isUp ? columns.map(fact) : []);
		const copy = isUp ? row.copy : 0;
		const isOther = last !== undefined && last !== copy;
		if (live.server) last = copy;
		if (isOther) change();
	};
	return {state, facts, notice, draw};
}

function controls({name, serving, can_control: canControl}, actions, tell, done) {
	if (!canControl) return h("span.quiet", CONTROL_HINT);
	const able = (isAble) => {
		for (const one of actions.querySelectorAll("button")) one.disabled = !isAble;
	};
	const act = async (label, verb, question) => {
		tell("");
		try {
			const before = await copiesOf(name);
			if (!(await confirmed(`${label} ${name}?`, question(before.newest), label))) return;
			able(false);
			await post(`/v2/repository/models/${encodeURIComponent(name)}/${verb}`, {});
			if (serving && verb === "load" && (await copiesOf(name)).key === before.key) {
				tell(h("p.notice", `${name} ${UNCHANGED}`));
			} else done(`${name} was ${label.toLowerCase()}ed`);
		} catch (error) {
			tell(failed(error));
		}
		able(true);
	};
	const control = (label, verb, question, more) => button(label, () => act(label, verb, question), more);
	if (!serving) return control("Load", "load", () => LOAD);
	const unload = ({ensembles, versions}) =>
		(versions.length > 1 ? `All of its versions go: ${versions.join(", ")}. ` : "") +
		UNLOAD +
		(ensembles.length ? ` So do the ensembles that it is a step of: ${ensembles.join(", ")}.` : "");
	return [control("Reload", "load", () => RELOAD), control("Unload", "unload", unload, {class: "danger"})];
}

async function copiesOf(name) {
	const address = `/console/api/models/${modelPath(name)}`;
	const newest = await get(address);
	const all = await Promise.all(newest.versions.map((version) => get(`${address}/versions/${version}`)));
	const copy = ({version, state, serving}) => [version, state, serving?.loaded_s, serving?.load_seconds];
	return {newest, key: JSON.stringify(all.map(copy))};
}

function showAgain(link) {
	if (location.hash === link) window.dispatchEvent(new HashChangeEvent("hashchange"));
	else location.hash = link;
}

function versionChoice({name, version, versions}) {
	if (versions.length < 2) return version && h("span.quiet", `version ${version}`);
	const options = versions.map((one) => [one, `version ${one}`]);
	const chosen = choice("Version", options, () => (location.hash = modelLink(name, chosen.value)));
	chosen.value = version;
	return chosen;
}
