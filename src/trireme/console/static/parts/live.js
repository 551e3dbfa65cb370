// The table of models as the server's event stream keeps it.
import {events, isAsking, send} from "./api.js";

const SPARK = 60;
const STEP_MS = 10000;
const LATE = "late";
const LATE_MS = 6000; // an event comes every second
const listeners = new Set();
export const rows = new Map();
export const live = {server: null, isConnected: false, problem: "", takenAt: 0};

export const idOf = (row) => `${row.name}\u0000${row.version}`;

export function listen(listener) {
	listeners.add(listener);
	if (live.server) listener();
	return () => listeners.delete(listener);
}

function tell(changed) {
	for (const listener of listeners) {
		try {
			listener(changed);
		} catch (error) {
			reportError(error); // a view that fails does not end the stream for the others
		}
	}
}

function take(event) {
	if (event.whole) rows.clear();
	const now = Date.now();
	const changed = new Set();
	for (const row of event.rows) {
		const id = idOf(row);
		const before = rows.get(id);
		row.spark ||= before?.spark || [];
		row.stepAt = before?.stepAt || now;
		rows.set(id, row);
		changed.add(id);
	}
	for (const [name, version] of event.gone) rows.delete(`${name}\u0000${version || ""}`);
	for (const row of rows.values()) {
		if (row.rps === undefined || now - row.stepAt < STEP_MS) continue;
		row.stepAt = now;
		row.spark.push(row.rps);
		if (row.spark.length > SPARK) row.spark.shift();
		changed.add(idOf(row));
	}
	live.server = event.server;
	live.takenAt = now;
	tell(event.whole ? null : changed);
}

let isAway = document.hidden;
let abort = new AbortController();
let wake;

function turn(isLeft) {
	isAway = isLeft;
	if (isAway) abort.abort();
	else wake?.();
}

export function followAgain() {
	abort.abort();
	wake?.();
}

export async function follow() {
	document.addEventListener("visibilitychange", () => turn(document.hidden));
	window.addEventListener("pagehide", () => turn(true));
	window.addEventListener("pageshow", () => turn(document.hidden));
	for (let wait = 0; ; ) {
		await new Promise((resolve) => {
			wake = resolve;
			if (!isAway) setTimeout(resolve, wait);
		});
		if (isAway) continue;
		const own = (abort = new AbortController());
		let timer;
		const expect = () => {
			clearTimeout(timer);
			timer = setTimeout(() => (isAsking() ? expect() : own.abort(LATE)), LATE_MS);
		};
		expect();
		try {
			const answer = await send("/console/api/events", {signal: abort.signal});
			live.isConnected = true;
			live.problem = "";
			wait = 0;
			for await (const {data} of events(answer)) {
				expect();
				take(JSON.parse(data));
			}
			live.problem = "The server has ended the stream.";
		} catch (error) {
			live.problem = error.status ? error.message : "The server does not answer.";
		}
		clearTimeout(timer);
		live.isConnected = false;
		wait = own.signal.aborted && own.signal.reason !== LATE ? 0 : Math.min(Math.max(500, wait * 2), 10000);
		if (wait) tell(new Set());
		own.abort();
	}
}
