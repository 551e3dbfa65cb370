// One answer of a language model as it is written, with its speed.
import {events, post} from "../parts/api.js";
import {joined} from "../parts/dom.js";

const NEAR = 40;

export class Answer {
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
			const [choice] = chunk.choices || [];
			if (!choice) continue;
			reason = choice.finish_reason || reason;
			if (choice.delta?.content) this.#write(choice.delta.content);
		}
		return reason;
	}

	// Drawn once for each picture on the screen. The list follows the words, unless somebody has scrolled up to read.
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
		this.turn.meta = this.meta.textContent = error.message;
		this.meta.classList.add("some-bad");
	}
}
