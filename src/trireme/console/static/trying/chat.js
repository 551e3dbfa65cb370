// A conversation with a language model.
import {events, post} from "../parts/api.js";
import {advised, button, form, h, joined, numberField, replace} from "../parts/dom.js";
import {chatSnippets} from "./snippets.js";

const kept = new Map();
const NUMBERS = [
	["max_tokens", "Most tokens", {min: 1, step: 1, value: "256"}],
	["temperature", "Temperature", {min: 0, max: 2, step: 0.1, value: "0.7"}],
	["top_p", "Top p", {min: 0, max: 1, step: 0.05, value: "1"}],
	["seed", "Seed", {step: 1, value: "", placeholder: "random"}],
];
const NEAR = 40; // pixels from the end
const HINT = "Write a message. Enter sends, Shift and Enter begin a new line.";

export function chatView(body, {name}) {
	const chat = new Chat(name);
	replace(body, chat.list, h("div.stack", chat.form, chat.parameters.node, chat.code));
	chat.draw();
	return () => chat.stop();
}

class Chat {
	constructor(model) {
		this.model = model;
		this.turns = kept.get(model) || [];
		kept.set(model, this.turns);
		this.abort = null;
		this.parameters = new Parameters();
		this.code = h("div");
		this.list = h("div.chat", {role: "log", label: "Conversation", tabindex: "0"});
		this.question = h("textarea", {label: "Message", placeholder: HINT, onkeydown: (event) => this.#key(event)});
		this.send = h("button.main", "Send");
		this.end = button("Stop", () => this.stop(), {id: "stop", hidden: true});
		const fresh = button("New conversation", () => this.#begin());
		const buttons = h("div.row.end", fresh, this.end, this.send);
		this.form = form("form.card", () => this.#say(), this.question, buttons);
	}

	stop() {
		this.abort?.abort();
	}

	draw() {
		const turn = (one) => turnNode(one, this.model);
		replace(this.list, this.turns.map(turn));
		this.list.scrollTop = this.list.scrollHeight;
	}

	#key(event) {
		if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
		event.preventDefault();
		this.form.requestSubmit();
	}

	#begin() {
		this.stop();
		this.turns.length = 0;
		this.draw();
		replace(this.code);
		this.question.focus();
	}

	async #say() {
		const content = this.question.value.trim();
		if (!content || this.abort) return;
		const options = this.parameters.read();
		if (!options) return;
		const asked = {role: "user", content};
		const answered = {role: "assistant", content: "", meta: "…"};
		const request = this.#request([...this.turns, asked], options);
		this.turns.push(asked, answered);
		this.question.value = "";
		this.draw();
		replace(this.code, chatSnippets(this.model, request));
		this.abort = new AbortController();
		this.send.disabled = true;
		this.end.hidden = false;
		await new Answer(answered, this.list).follow(request, this.abort.signal);
		asked.isFailed = !answered.content;
		this.abort = null;
		this.send.disabled = false;
		this.end.hidden = true;
		this.question.focus({preventScroll: true});
	}

	#request(turns, {system, ...options}) {
		const said = turns.filter((turn) => turn.content && !turn.isFailed);
		const messages = said.map(({role, content}) => ({role, content}));
		if (system) messages.unshift({role: "system", content: system});
		return {model: this.model, messages, ...options, stream: true, stream_options: {include_usage: true}};
	}
}

class Parameters {
	constructor() {
		this.system = h("textarea", {label: "System prompt", placeholder: "System prompt, optional"});
		const oninput = () => this.others.setCustomValidity("");
		const words = {label: "Other parameters as JSON", placeholder: '{"top_k": 40}'};
		this.others = h("input.mono", {...words, spellcheck: "false", oninput});
		this.numbers = NUMBERS.map(([name, label, more]) => [name, numberField(label, more), label]);
		const fields = this.numbers.map(([, input, label]) => h("label", `${label} `, input));
		const row = h("div.row", fields, h("label", "Others, as JSON ", this.others));
		this.node = h("details.card", {id: "parameters"}, h("summary", "Parameters"), row, this.system);
	}

	read() {
		const isOut = ([, {validity}]) => validity.rangeUnderflow || validity.rangeOverflow || validity.badInput;
		const wrong = this.numbers.find(isOut);
		if (wrong) {
			this.node.open = true;
			wrong[1].reportValidity();
			return null;
		}
		const given = this.numbers.filter(([, input]) => input.value !== "");
		const options = Object.fromEntries(given.map(([name, input]) => [name, Number(input.value)]));
		try {
			const more = JSON.parse(this.others.value.trim() || "{}");
			if (more?.constructor !== Object) throw new Error("no object");
			return {...options, ...more, system: this.system.value.trim()};
		} catch {
			this.node.open = true;
			this.others.setCustomValidity('This is not an object of JSON, such as {"top_k": 40}.');
			this.others.reportValidity();
			return null;
		}
	}
}

function turnNode(turn, model) {
	const who = h("div.who", turn.role === "user" ? "You" : model);
	const meta = turn.meta && h("div.meta", {class: turn.isFailed && "some-bad"}, turn.meta);
	return h(`article.turn.${turn.role}`, who, h("div.words", turn.content), meta);
}

class Answer {
	constructor(turn, list) {
		this.turn = turn;
		this.list = list;
		this.words = list.lastChild.querySelector(".words");
		this.meta = list.lastChild.querySelector(".meta");
		this.began = performance.now();
		Object.assign(this, {first: 0, pieces: 0, usage: null, frame: 0, isFollowed: true});
	}

	async follow(request, signal) {
		try {
			const reason = await this.#read(await post("/v1/chat/completions", request, {signal}));
			this.#tell(reason === "length" ? "cut at the most tokens" : "");
		} catch (error) {
			if (signal.aborted) this.#tell("stopped");
			else this.#fail(error);
		}
	}

	async #read(answer) {
		let reason = "";
		for await (const {data} of events(answer)) {
			if (data === "[DONE]") break;
			const chunk = JSON.parse(data);
			if (chunk.error) throw new Error(chunk.error.message || String(chunk.error));
			this.usage = chunk.usage || this.usage;
			const choice = chunk.choices?.find(({index}) => !index); // of several answers the first
			if (!choice) continue;
			reason = choice.finish_reason || reason;
			if (choice.delta?.content) this.#write(choice.delta.content);
		}
		return reason;
	}

	#write(piece) {
		const {list} = this;
		this.first ||= performance.now();
		this.pieces += 1;
		this.turn.content += piece;
		if (!this.frame) {
			this.isFollowed = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
			this.frame = requestAnimationFrame(() => this.#tell(""));
		}
		this.words.append(piece);
	}

	#tell(more) {
		cancelAnimationFrame(this.frame);
		this.frame = 0;
		const {usage, first, began} = this;
		const tokens = usage ? usage.completion_tokens : this.pieces;
		const seconds = (performance.now() - (first || began)) / 1000;
		const speed = tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
		const wait = first && `first after ${Math.round(first - began)} ms`;
		const prompt = usage && `${usage.prompt_tokens} in the prompt`;
		this.turn.meta = joined([`${tokens} tokens`, speed, wait, prompt, more]);
		this.meta.textContent = this.turn.meta;
		if (this.isFollowed) this.list.scrollTop = this.list.scrollHeight;
	}

	#fail(error) {
		cancelAnimationFrame(this.frame);
		this.turn.isFailed = !this.turn.content;
		this.turn.meta = this.meta.textContent = advised(error);
		this.meta.classList.add("some-bad");
	}
}
