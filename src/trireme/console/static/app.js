// The view that the address asks for behind #, and the line of vital signs above it.
import {clock, failed, h, note, replace, setAttribute, setText, share, span} from "./parts/dom.js";
import {changeKey, hasKey} from "./parts/api.js";
import {follow, followAgain, listen, live} from "./parts/live.js";
import {modelView} from "./models/model.js";
import {modelsView} from "./models/table.js";
import {apiView} from "./pages/apidoc.js";
import {requestsView} from "./pages/requests.js";
import {serverView} from "./pages/server.js";

const main = document.getElementById("main");
const otherKey = document.getElementById("other-key");
const VIEWS = {models: modelsView, model: modelView, requests: requestsView, server: serverView, api: apiView};
let leave = null;
let shown = 0;
let isCut = false; // the view could not be shown: the server was away
let wasConnected = false;

async function show() {
	const number = ++shown;
	const [page, ...parts] = addressed();
	const last = leave;
	leave = null;
	last?.();
	mark(page);
	const isKnown = Object.hasOwn(VIEWS, page) && (page !== "model" || parts[0]);
	document.title = `${isKnown && parts[0] ? parts[0] : page[0].toUpperCase() + page.slice(1)} · Trireme`;
	const place = h("div");
	const slow = setTimeout(() => number === shown && replace(main, note("Waiting for the server.")), 1000);
	let stop = null;
	isCut = false;
	try {
		stop = await (isKnown ? VIEWS[page] : noView)(place, parts);
	} catch (error) {
		if (number === shown) isCut = error.isAway;
		replace(place, failed(error), home());
	}
	clearTimeout(slow);
	if (number === shown) {
		leave = stop;
		replace(main, place);
	} else stop?.();
}

function addressed() {
	const parts = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
	return [parts[0] || "models", ...parts.slice(1)];
}

function decoded(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

function mark(page) {
	const here = /^models?$/.test(page) ? "#/" : `#/${page}`;
	for (const link of document.querySelectorAll("#nav a")) {
		setAttribute(link, "aria-current", link.hash === here && "page");
	}
}

const home = () => h("p", h("a", {href: "#/"}, "All models"));
const noView = (place) => void replace(place, h("h1", "There is no such page"), home());

function vitals() {
	const line = document.getElementById("vitals");
	const {isConnected, problem, takenAt} = live;
	const isOld = Boolean(takenAt) && !isConnected;
	const asOf = isOld ? ` Figures as of ${clock(takenAt / 1000)}.` : "";
	document.body.classList.toggle("old", isOld);
	const signs = [["", isConnected ? "Live" : (problem || "Connecting…") + asOf], ...signsOf(live.server)];
	const form = signs.map(([label]) => label).join();
	if (line.dataset.form !== form) {
		line.dataset.form = form;
		const sign = ([label]) => h("span", `${label} `, h("b"));
		replace(line, h("span", h("span.dot"), h("span")), signs.slice(1).map(sign));
	}
	line.querySelector(".dot").className = `dot ${isConnected ? "good" : "bad"}`;
	signs.forEach(([, text], at) => setText(line.children[at].lastChild, text));
	otherKey.hidden = !hasKey();
	if (isCut && isConnected && !wasConnected) show();
	wasConnected = isConnected;
}

function signsOf(server) {
	if (!server) return [];
	const signs = [["Up", span(server.uptime_s)]];
	if (server.cpu !== null) signs.push(["CPU", share(server.cpu)]);
	if (server.memory_total) signs.push(["Memory", share(server.memory / server.memory_total)]);
	const busy = server.devices.filter((device) => device.utilization !== null).slice(0, 4);
	return [...signs, ...busy.map((device) => [device.label, share(device.utilization)])];
}

otherKey.addEventListener("click", () => changeKey().then(followAgain).then(show));
document.getElementById("skip").addEventListener("click", (event) => {
	event.preventDefault();
	main.focus();
});
window.addEventListener("hashchange", () => {
	show();
	main.focus({preventScroll: true});
	window.scrollTo(0, 0);
});
window.addEventListener("again", show);
listen(vitals);
vitals();
show();
follow();
