// The table of models as the server's event stream keeps it.
import {SILENT, channel, events, isAsking, send, tune} from "./api.js";

const SPARK = 60;
const STEP_MS = 10000;
const LATE = "late";
const OTHER = "other";
const LATE_MS = 6000;
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

function take(data) {
	const event = JSON.parse(data);
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
	Object.assign(live, {server: event.server, takenAt: now, isConnected: true, problem: ""});
	tell(event.whole ? null : changed);
}

let abort = new AbortController();
let wake;
let silence;
let since = Infinity;

// One window in sight has the stream and tells the others: a browser has six connections.
function hear({data: [theirs, data, problem]}) {
	if (theirs > since) return; // this window keeps it
	abort.abort(OTHER);
	since = Infinity;
	if (!data) {
		lose(problem);
		setTimeout(() => wake(), 500 * Math.random());
		return;
	}
	expect();
	take(data);
}

function expect() {
	clearTimeout(silence);
	silence = setTimeout(() => {
		if (isAsking()) return expect();
		abort.abort(LATE);
		lose(SILENT);
		wake();
	}, LATE_MS);
}

function tellWindows(data, problem) {
	if (since < Infinity) channel?.postMessage([since, data, problem]);
	if (!data) since = Infinity;
}

function lose(problem) {
	if (!problem) return;
	Object.assign(live, {isConnected: false, problem});
	tell(new Set());
}

export function followAgain() {
	tellWindows();
	tune();
	clearTimeout(silence);
	abort.abort();
	live.isConnected = false;
	wake?.();
}

export async function follow() {
	document.addEventListener("visibilitychange", followAgain);
	for (let wait = 0; ; ) {
		await new Promise((resolve) => {
			wake = resolve;
			if (!document.hidden && abort.signal.reason !== OTHER) setTimeout(resolve, wait);
		});
		if (document.hidden) continue;
		const own = (abort = new AbortController());
		expect();
		let problem = "The server has ended the stream.";
		try {
			const answer = await send("/console/api/events", {signal: own.signal});
			since = Date.now() + Math.random();
			wait = 0;
			for await (const {data} of events(answer)) {
				expect();
				take(data);
				if (!own.signal.aborted && !channel) tune(hear);
				tellWindows(data);
			}
		} catch (error) {
			problem = error.status ? error.message : SILENT;
		}
		if (own.signal.reason === OTHER) continue;
		clearTimeout(silence);
		const isLeft = own.signal.aborted && own.signal.reason !== LATE;
		wait = isLeft ? 0 : Math.min(Math.max(500, wait * 2), 10000);
		if (!isLeft) {
			tellWindows("", problem);
			lose(problem);
		}
		own.abort();
	}
}
