// A form made from the model's inputs, its answer, and where the time of that request went.
import {advised, button, card, form, h, note, numberField, releaseMedia, replace, tick} from "../parts/dom.js";
import {waterfall} from "../parts/waterfall.js";
import {ensembleGraph} from "../parts/graph.js";
import {createField} from "./fields.js";
import {ask, stream} from "./requests.js";
import {inferSnippets} from "./snippets.js";
import {fitting, valueOf} from "./written.js";

export function tryView(body, {detail}) {
	const trial = new Trial(detail);
	const answer = h("section.card", {label: "Answer"}, h("h2", "Answer"), trial.answer);
	replace(body, h("div.two.trial", trial.form, answer, trial.more));
	return () => trial.leave();
}

class Trial {
	constructor(detail) {
		this.detail = detail;
		const serving = (this.serving = detail.serving);
		this.image = "";
		this.abort = null;
		this.fields = serving.inputs.map((input) => createField(input, serving, (address) => (this.image = address)));
		this.sequence = serving.is_sequence ? sequenceFields(serving.has_text_ids) : null;
		this.stop = button("Stop", () => this.abort?.abort(), {hidden: true});
		this.go = h("button.main", "Send");
		this.answer = h("div.stack", {"aria-live": "polite"}, note("The answer appears here."));
		this.waiting = note("Waiting for the answer.");
		this.more = h("div.stack");
		const fields = this.fields.map((field) => field.node);
		const buttons = h("div.row", this.go, this.stop);
		this.form = form("form.card", () => this.run(), h("h2", "Request"), fields, this.sequence?.node, buttons);
	}

	async run() {
		const serving = (this.detail.serving ||= this.serving); // a form outlives its model
		this.abort = new AbortController();
		const {signal} = this.abort;
		this.go.disabled = true;
		this.stop.hidden = false;
		try {
			this.show(this.waiting);
			const inputs = (await Promise.all(this.fields.map((field) => field.read()))).filter(Boolean);
			const parameters = this.sequence?.read() || {};
			replace(this.more, inferSnippets(this.detail, inputs, parameters, serving.is_decoupled));
			this.context = {labels: serving.labels, image: this.image};
			await (serving.is_decoupled ? stream : ask)(this, inputs, parameters, signal);
			this.sequence?.sent(parameters);
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

	tell(error, isStopped) {
		const words = isStopped ? "Stopped." : advised(error);
		const said = h("p", {class: isStopped ? "notice" : "notice bad", role: "alert"}, words);
		if (this.waiting.isConnected) this.show(said);
		else this.answer.append(said); // behind what has come of a stream
	}

	explain(table) {
		const {serving} = this.detail;
		const graph = () => card("Steps of this request", h("div.graph", ensembleGraph(serving, table.steps)));
		this.more.prepend(card("Where the time went", waterfall(table)), ...(serving.is_ensemble ? [graph()] : []));
	}

	leave() {
		this.abort?.abort();
		for (const field of this.fields) field.stop();
		releaseMedia(this.answer);
	}
}

function sequenceFields(hasTextIds) {
	const id = numberField("Sequence", {type: hasTextIds ? "text" : "number", min: 1, value: "1"});
	const [start, end] = [tick({checked: true}), tick()];
	const ends = [h("label", start, " first request"), h("label", end, " last request")];
	const node = h("div.row.field", h("label", "Sequence ", id), ends);
	const idOf = () => (hasTextIds ? id.value : fitting({name: "Sequence", datatype: "UINT64"}, valueOf(id)));
	const read = () => ({sequence_id: idOf(), sequence_start: start.checked, sequence_end: end.checked});
	const sent = ({sequence_end: isOver}) => {
		start.checked = isOver;
		end.checked = false;
	};
	return {node, read, sent};
}
