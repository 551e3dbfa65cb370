// A conversation with a language model: streamed, with its parameters, tokens per second, and a stop that cancels.
import {h, replace} from "./dom.js";
import {events, failure, send} from "./api.js";
import {chatSnippets} from "./snippets.js";

const kept = new Map(); // conversations by model, as long as the page is open
const NUMBERS = [["max_tokens", "Most tokens", {min: 1, step: 1, value: "256"}], ["temperature", "Temperature", {min: 0, max: 2, step: 0.1, value: "0.7"}],
  ["top_p", "Top p", {min: 0, max: 1, step: 0.05, value: "1"}], ["seed", "Seed", {step: 1, value: "", placeholder: "random"}]];

export function chatView(body, detail) {
  const model = detail.name;
  const turns = kept.get(model) || [];
  kept.set(model, turns);
  let abort = null;
  const list = h("div", {class: "chat", role: "log", "aria-label": "Conversation"});
  const system = h("textarea", {"aria-label": "System prompt", placeholder: "System prompt, optional"});
  const others = h("input", {"aria-label": "Other parameters as JSON", placeholder: '{"top_k": 40}', spellcheck: "false", class: "mono"});
  const fields = NUMBERS.map(([name, label, more]) => ({name, label, input: h("input", {type: "number", class: "narrow", "aria-label": label, ...more})}));
  const question = h("textarea", {"aria-label": "Message", placeholder: "Write a message. Enter sends, Shift and Enter begin a new line.", onkeydown: (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  }});
  const go = h("button", {class: "main"}, "Send");
  const stop = h("button", {type: "button", id: "stop", hidden: true, onclick: () => abort && abort.abort()}, "Stop");
  const fresh = h("button", {type: "button", onclick: () => { if (abort) abort.abort(); turns.length = 0; draw(); replace(code); question.focus(); }}, "New conversation");
  const code = h("div");
  const form = h("form", {class: "card", onsubmit: (event) => { event.preventDefault(); say(); }}, question, h("div", {class: "row end"}, fresh, stop, go));
  replace(body, list, h("div", {class: "stack"}, form, h("details", {class: "card", id: "parameters"}, h("summary", {}, "Parameters"), h("div", {class: "row"}, fields.map(({label, input}) => h("label", {}, `${label} `, input)), h("label", {}, "Others, as JSON ", others)), system), code));

  const turnNode = (turn) => h("article", {class: `turn ${turn.role}`}, h("div", {class: "who"}, turn.role === "user" ? "You" : model), h("div", {class: "words"}, turn.content), turn.meta && h("div", {class: "meta"}, turn.meta));
  const draw = () => replace(list, turns.map(turnNode));
  draw();

  function request() {
    const messages = turns.filter((turn) => !turn.isFailed && turn.content).map(({role, content}) => ({role, content}));
    if (system.value.trim()) messages.unshift({role: "system", content: system.value});
    const options = Object.fromEntries(fields.filter(({input}) => input.value !== "").map(({name, input}) => [name, Number(input.value)]));
    const more = others.value.trim() ? JSON.parse(others.value) : {};
    return {model, messages, ...options, ...more, stream: true, stream_options: {include_usage: true}};
  }

  async function say() {
    const text = question.value.trim();
    if (!text || abort) return;
    turns.push({role: "user", content: text});
    let wanted;
    try {
      wanted = request();
    } catch {
      turns.pop();
      others.setCustomValidity("This is not JSON.");
      document.getElementById("parameters").open = true;
      others.reportValidity();
      others.setCustomValidity("");
      return;
    }
    question.value = "";
    const turn = {role: "assistant", content: "", meta: "…"};
    turns.push(turn);
    draw();
    replace(code, chatSnippets(model, wanted));
    const node = list.lastChild;
    const words = node.querySelector(".words");
    const meta = node.querySelector(".meta");
    abort = new AbortController();
    go.disabled = true;
    stop.hidden = false;
    const began = performance.now();
    let first = 0;
    let pieces = 0;
    let usage = null;
    const tell = (more) => {
      const tokens = usage ? usage.completion_tokens : pieces;
      const seconds = (performance.now() - (first || began)) / 1000;
      const speed = tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
      turn.meta = [`${tokens} tokens`, speed, first && `first after ${Math.round(first - began)} ms`, usage && `${usage.prompt_tokens} in the prompt`, more].filter(Boolean).join(" · ");
      meta.textContent = turn.meta;
    };
    try {
      const answer = await send("/v1/chat/completions", {method: "POST", body: JSON.stringify(wanted), headers: {"Content-Type": "application/json"}, signal: abort.signal});
      if (!answer.ok) throw await failure(answer);
      let reason = "";
      for await (const {data} of events(answer)) {
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message || String(chunk.error));
        usage = chunk.usage || usage;
        const [choice] = chunk.choices || [];
        if (!choice) continue;
        reason = choice.finish_reason || reason;
        const piece = choice.delta && choice.delta.content;
        if (!piece) continue;
        first ||= performance.now();
        pieces += 1;
        turn.content += piece;
        words.append(document.createTextNode(piece));
        tell("");
      }
      tell(reason === "length" ? "cut at the most tokens" : "");
    } catch (error) {
      if (error.name === "AbortError") tell("stopped");
      else { turn.isFailed = !turn.content; turn.meta = error.message; meta.textContent = error.message; meta.classList.add("some-bad"); }
    } finally {
      abort = null;
      go.disabled = false;
      stop.hidden = true;
      question.focus();
    }
  }
  return () => { if (abort) abort.abort(); };
}
