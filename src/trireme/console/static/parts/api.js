// Requests to the server that this page came from, with the API key where one is needed, and streams of events.
import {h} from "./dom.js";

let key = sessionStorage.getItem("trireme-key") || "";
let asking = null;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => key !== "";

function headers(more) {
  return key ? {...more, Authorization: `Bearer ${key}`} : {...more};
}

export async function send(path, options = {}) {
  for (;;) {
    const used = key;
    const answer = await fetch(path, {...options, headers: headers(options.headers), cache: "no-store"});
    if (answer.status !== 401) return answer;
    if (used === key) await askForKey();
  }
}

export async function failure(answer) {
  const whole = await answer.text();
  const [, text] = /^data: (.*)/.exec(whole) || [0, whole]; // a stream that failed at once
  try {
    const body = JSON.parse(text);
    const error = body.error;
    return new ApiError(answer.status, (error && error.message) || error || text);
  } catch {
    return new ApiError(answer.status, text || `HTTP ${answer.status}`);
  }
}

export async function get(path, options) {
  const answer = await send(path, options);
  if (!answer.ok) throw await failure(answer);
  return answer.json();
}

export async function post(path, body, options = {}) {
  const answer = await send(path, {method: "POST", body: JSON.stringify(body), ...options});
  if (!answer.ok) throw await failure(answer);
  return answer;
}

// Yields {event, data} until the stream ends; aborting the signal closes the connection.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        const lines = rest.slice(0, end).split("\n");
        rest = rest.slice(end + 2);
        const entry = {event: "message", data: ""};
        for (const line of lines) {
          if (line.startsWith("event:")) entry.event = line.slice(6).trim();
          else if (line.startsWith("data:")) entry.data += line.slice(5).trimStart();
        }
        yield entry;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// For somebody whose key does not open what the page needs.
export function changeKey() {
  key = "";
  sessionStorage.removeItem("trireme-key");
  return askForKey();
}

function askForKey() {
  asking ||= new Promise((resolve) => {
    const field = h("input", {type: "password", autocomplete: "off", id: "key", required: true});
    const onsubmit = (event) => {
      event.preventDefault();
      key = field.value.trim();
      sessionStorage.setItem("trireme-key", key);
      dialog.close();
      dialog.remove();
      asking = null;
      resolve();
    };
    const title = h("h2", {id: "key-title"}, "This server asks for an API key");
    const words = key ? "The key was not accepted." : "It stays in this tab and is sent with every request.";
    const label = h("label", {for: "key"}, "API key");
    const go = h("div.row.end", h("button.main", "Continue"));
    const form = h("form", {onsubmit}, title, h("p.quiet", words), label, field, go);
    const stay = (event) => event.preventDefault();
    const dialog = h("dialog", {"aria-labelledby": "key-title", oncancel: stay}, form);
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
