// A form made from the model's inputs, its answer, the waterfall of that request, and the request as a program.
import {h, replace, time} from "./dom.js";
import {events, failure, send} from "./api.js";
import {createField} from "./fields.js";
import {showOutputs} from "./answers.js";
import {decodeAnswer, decodeJson, encodeRequest} from "./tensors.js";
import {waterfall} from "./waterfall.js";
import {ensembleGraph} from "./graph.js";
import {inferSnippets} from "./snippets.js";

const MOST_EVENTS = 500;

export function tryView(body, detail) {
  const {serving} = detail;
  let image = "";
  let abort = null;
  const fields = serving.inputs.map((input) => createField(input, serving, (address) => { image = address; }));
  const stop = h("button", {type: "button", hidden: true, onclick: () => abort && abort.abort()}, "Stop");
  const go = h("button", {class: "main"}, "Send");
  const answer = h("div", {class: "stack", "aria-live": "polite"}, h("p", {class: "quiet"}, "The answer appears here."));
  const more = h("div", {class: "stack"});
  const sequence = serving.is_sequence ? sequenceFields() : null;
  const form = h("form", {class: "card", onsubmit: (event) => { event.preventDefault(); run(); }},
    h("h2", {}, "Request"), fields.map((field) => field.node), sequence && sequence.node, h("div", {class: "row"}, go, stop));
  replace(body, h("div", {class: "two"}, h("div", {class: "stack"}, form, more), h("section", {class: "card", "aria-label": "Answer"}, h("h2", {}, "Answer"), answer)));

  async function run() {
    abort = new AbortController();
    go.disabled = true;
    stop.hidden = false;
    const began = performance.now();
    try {
      const inputs = (await Promise.all(fields.map((field) => field.read()))).filter(Boolean);
      const parameters = sequence ? sequence.read() : {};
      replace(more, inferSnippets(detail, inputs, parameters, serving.is_decoupled));
      await (serving.is_decoupled ? stream(inputs, parameters, began) : ask(inputs, parameters, began));
    } catch (error) {
      const text = error.name === "AbortError" ? "Stopped." : error.message;
      const said = h("p", {class: error.name === "AbortError" ? "notice" : "notice bad", role: "alert"}, text);
      if (error.name === "AbortError") answer.append(said); else replace(answer, said);
    } finally {
      abort = null;
      go.disabled = false;
      stop.hidden = true;
    }
  }

  const path = `/v2/models/${encodeURIComponent(detail.name)}/versions/${detail.version}/infer`;

  async function ask(inputs, parameters, began) {
    const isForm = inputs.some((input) => input.form);
    let request;
    if (isForm) {
      request = new FormData();
      for (const input of inputs) {
        if (input.form) request.append(input.name, input.form, input.file);
        else request.append(input.name, input.data instanceof Uint8Array ? new Blob([input.data.slice(4)]) : JSON.stringify(input.data.length === 1 ? input.data[0] : input.data));
      }
    }
    const {body: content, headers} = isForm ? {body: request, headers: {}} : encodeRequest(inputs, parameters, true);
    const found = await send(path, {method: "POST", body: content, headers: {...headers, "X-Explain": "1"}, signal: abort.signal});
    if (!found.ok) throw await failure(found);
    const explained = found.headers.get("X-Explain");
    const decoded = await decodeAnswer(found);
    replace(answer, h("p", {class: "quiet"}, `Answered in ${time((performance.now() - began) * 1000)}, as this browser sees it.`), showOutputs(decoded.outputs, {labels: serving.labels, image}));
    if (explained) explain(JSON.parse(explained));
  }

  async function stream(inputs, parameters, began) {
    const {body: content, headers} = encodeRequest(inputs, parameters, false);
    const found = await send(path, {method: "POST", body: content, headers: {...headers, Accept: "text/event-stream", "X-Explain": "1"}, signal: abort.signal});
    if (!found.ok) throw await failure(found);
    const counted = h("p", {class: "quiet"}, "Waiting for the first response.");
    const list = h("div", {class: "stack"});
    replace(answer, counted, list);
    let number = 0;
    let joined = null;
    for await (const {event, data} of events(found)) {
      const value = JSON.parse(data);
      if (event === "explain") { explain(value); continue; }
      if (value.error) throw new Error(value.error);
      const {outputs} = decodeJson(value);
      if (!outputs.length) continue;
      number += 1;
      counted.textContent = `${number} responses in ${time((performance.now() - began) * 1000)}`;
      if (outputs.length === 1 && outputs[0].datatype === "BYTES") {
        if (!joined) { joined = h("pre", {class: "code"}); list.append(joined); }
        joined.append(document.createTextNode(outputs[0].values.join("")));
      } else list.append(h("div", {class: "event"}, showOutputs(outputs, {labels: serving.labels, image})));
      if (list.children.length > MOST_EVENTS) list.firstChild.remove();
    }
    if (!number) counted.textContent = "The model ended without a response.";
  }

  function explain(table) {
    const graph = serving.is_ensemble ? h("section", {class: "card"}, h("h2", {}, "Steps of this request"), h("div", {class: "graph"}, ensembleGraph(serving, table.steps))) : null;
    more.prepend(h("section", {class: "card"}, h("h2", {}, "Where the time went"), waterfall(table)), ...(graph ? [graph] : []));
  }
  return () => { if (abort) abort.abort(); };
}

function sequenceFields() {
  const id = h("input", {type: "number", min: 1, value: "1", class: "narrow", "aria-label": "Sequence"});
  const start = h("input", {type: "checkbox", checked: true});
  const end = h("input", {type: "checkbox"});
  const node = h("div", {class: "row field"}, h("label", {}, "Sequence ", id), h("label", {}, start, " first request"), h("label", {}, end, " last request"));
  return {node, read: () => ({sequence_id: Number(id.value), sequence_start: start.checked, sequence_end: end.checked})};
}
