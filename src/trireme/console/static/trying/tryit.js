// A form made from the model's inputs, its answer, the waterfall of that request, and the request as a program.
import {h, replace} from "../parts/dom.js";
import {releaseMedia} from "../parts/media.js";
import {waterfall} from "../parts/waterfall.js";
import {ensembleGraph} from "../parts/graph.js";
import {createField} from "./fields.js";
import {ask, stream} from "./requests.js";
import {inferSnippets} from "./snippets.js";

export function tryView(body, detail) {
  const trial = new Trial(detail);
  replace(
    body,
    h(
      "div.two.trial",
      trial.form,
      h("section.card", {"aria-label": "Answer"}, h("h2", "Answer"), trial.answer),
      trial.more,
    ),
  );
  return () => trial.leave();
}

class Trial {
  constructor(detail) {
    this.detail = detail;
    const {serving} = detail;
    this.image = ""; // the address of the picture that is sent
    this.abort = null;
    this.fields = serving.inputs.map((input) => createField(input, serving, (address) => (this.image = address)));
    this.sequence = serving.is_sequence ? sequenceFields() : null;
    this.stop = h("button", {type: "button", hidden: true, onclick: () => this.abort && this.abort.abort()}, "Stop");
    this.go = h("button.main", "Send");
    this.answer = h("div.stack", {"aria-live": "polite"});
    replace(this.answer, h("p.quiet", "The answer appears here."));
    this.waiting = h("p.quiet", "Waiting for the answer.");
    this.more = h("div.stack");
    const onsubmit = (event) => {
      event.preventDefault();
      this.run();
    };
    this.form = h(
      "form.card",
      {onsubmit},
      h("h2", "Request"),
      this.fields.map((field) => field.node),
      this.sequence && this.sequence.node,
      h("div.row", this.go, this.stop),
    );
  }

  async run() {
    const {serving} = this.detail;
    this.abort = new AbortController();
    const {signal} = this.abort;
    this.go.disabled = true;
    this.stop.hidden = false;
    try {
      const inputs = (await Promise.all(this.fields.map((field) => field.read()))).filter(Boolean);
      const parameters = this.sequence ? this.sequence.read() : {};
      replace(this.more, inferSnippets(this.detail, inputs, parameters, serving.is_decoupled));
      this.show(this.waiting);
      const context = {labels: serving.labels, image: this.image};
      const place = {show: (...nodes) => this.show(...nodes), explain: (table) => this.explain(table)};
      await (serving.is_decoupled ? stream : ask)(this.detail, inputs, parameters, signal, context, place);
      if (this.sequence) this.sequence.sent(parameters);
    } catch (error) {
      this.tell(error, signal.aborted);
    } finally {
      this.abort = null;
      this.go.disabled = false;
      this.stop.hidden = true;
    }
  }

  show(...nodes) {
    releaseMedia(this.answer);
    replace(this.answer, nodes);
  }

  // Below what has come of a stream, in the place of an answer that was there before.
  tell(error, isStopped) {
    const words = isStopped ? "Stopped." : error.message;
    const said = h("p", {class: isStopped ? "notice" : "notice bad", role: "alert"}, words);
    if (!this.waiting.isConnected && (isStopped || error.isInStream)) this.answer.append(said);
    else this.show(said);
  }

  explain(table) {
    const {serving} = this.detail;
    const card = (title, ...inner) => h("section.card", h("h2", title), inner);
    const graph = () => h("div.graph", ensembleGraph(serving, table.steps));
    const steps = serving.is_ensemble ? [card("Steps of this request", graph())] : [];
    this.more.prepend(card("Where the time went", waterfall(table)), ...steps);
  }

  leave() {
    if (this.abort) this.abort.abort();
    for (const field of this.fields) field.stop();
    releaseMedia(this.answer);
  }
}

function sequenceFields() {
  const id = h("input", {type: "number", min: 1, value: "1", class: "narrow", "aria-label": "Sequence"});
  const start = h("input", {type: "checkbox", checked: true});
  const end = h("input", {type: "checkbox"});
  const node = h(
    "div.row.field",
    h("label", "Sequence ", id),
    h("label", start, " first request"),
    h("label", end, " last request"),
  );
  const read = () => ({sequence_id: Number(id.value), sequence_start: start.checked, sequence_end: end.checked});
  // What comes behind the last request of a sequence is the first one of another.
  const sent = ({sequence_end: isOver}) => {
    start.checked = isOver;
    end.checked = false;
  };
  return {node, read, sent};
}
