// The same request as a command and as programs, to be copied.
import {copyButton, h, replace} from "../parts/dom.js";
import {hasKey} from "../parts/api.js";
import {HALVES, writeJson} from "../parts/tensors.js";
import {python, tritonclient} from "./python.js";

const MOST_VALUES = 64;
const NO_JSON = "# FP16 and BF16 go as bytes, which JSON has not: the Python client sends them.";
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const keyFlag = () => (hasKey() ? ' -H "Authorization: Bearer $KEY"' : "");

// inputs as they were read from the form.
export function inferSnippets(detail, inputs, parameters, isStream) {
  const version = detail.versions.length > 1 ? `/versions/${detail.version}` : "";
  const address = `${location.origin}/v2/models/${encodeURIComponent(detail.name)}${version}/infer`;
  const isPlain = (input) => Array.isArray(input.data) && input.data.length <= MOST_VALUES;
  const isWhole = inputs.every((input) => isPlain(input) && !HALVES[input.datatype]);
  const listed = inputs.map(({name, datatype, shape, data}) => ({name, datatype, shape, data}));
  const body = {inputs: listed, ...(Object.keys(parameters).length ? {parameters} : {})};
  return snippetBox({
    curl: curl(address, inputs, isWhole ? body : null, isStream),
    "Python, tritonclient": tritonclient(detail, inputs, parameters, isStream, isPlain),
    JavaScript: script(address, isWhole ? body : null, isStream),
  });
}

// `body` is null where it is too long to be written down.
function curl(address, inputs, body, isStream) {
  const begin = `curl${isStream ? " -N -H 'Accept: text/event-stream'" : ""}${keyFlag()} ${address}`;
  const isForm = inputs.some((input) => input.file) && inputs.every((input) => input.file || isSingle(input));
  if (isForm) {
    const field = (input) => `${input.name}=${input.file ? `@${input.file}` : input.data[0]}`;
    return `${begin} ${inputs.map((input) => `-F ${quoted(field(input))}`).join(" ")}`;
  }
  if (inputs.some((input) => HALVES[input.datatype])) return NO_JSON;
  if (body) return `${begin} -d ${quoted(writeJson(body))}`;
  const held = inputs.map((input) => `${input.name} ${JSON.stringify(input.shape)}`).join(", ");
  return `# request.json holds ${held}\n${begin} -d @request.json`;
}

const isSingle = (input) => Array.isArray(input.data) && input.data.length === 1;

// Numbers that the language would round stay in the text.
function literal(body) {
  const text = writeJson(body);
  return text === JSON.stringify(JSON.parse(text)) ? `JSON.stringify(${text})` : JSON.stringify(text);
}

function script(address, body, isStream) {
  const headers = [
    ...(hasKey() ? ["Authorization: `Bearer ${key}`"] : []),
    ...(isStream ? ['Accept: "text/event-stream"'] : []),
  ];
  return [
    `const answer = await fetch(${JSON.stringify(address)}, {`,
    '  method: "POST",',
    ...(headers.length ? [`  headers: {${headers.join(", ")}},`] : []),
    `  body: ${body ? literal(body) : 'JSON.stringify({inputs: "…"})'},`,
    "});",
    isStream
      ? "for await (const chunk of answer.body) console.log(new TextDecoder().decode(chunk));"
      : "console.log(await answer.json());",
  ].join("\n");
}

const OPENAI = ["max_tokens", "temperature", "top_p", "seed", "stop", "n", "presence_penalty", "frequency_penalty"];

export function chatSnippets(model, request) {
  const address = `${location.origin}/v1/chat/completions`;
  return snippetBox({
    curl: `curl -N${keyFlag()} ${address} -d ${quoted(JSON.stringify(request))}`,
    "Python, openai": openai(model, request),
    JavaScript: script(address, request, true),
  });
}

// What that package does not know goes along beside what it knows.
function openai(model, {model: _, messages, stream, stream_options: options, ...rest}) {
  const known = Object.entries(rest).filter(([name]) => OPENAI.includes(name));
  const more = Object.fromEntries(Object.entries(rest).filter(([name]) => !OPENAI.includes(name)));
  return [
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${python(`${location.origin}/v1`)}, api_key=${hasKey() ? "key" : '"none"'})`,
    "stream = client.chat.completions.create(",
    `    model=${python(model)},`,
    `    messages=${python(messages)},`,
    ...known.map(([name, value]) => `    ${name}=${python(value)},`),
    ...(Object.keys(more).length ? [`    extra_body=${python(more)},`] : []),
    `    stream=${python(stream)},`,
    `    stream_options=${python(options)},`,
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join("\n");
}

function snippetBox(texts) {
  const names = Object.keys(texts);
  const code = h("pre", {class: "code", tabindex: "0"}, texts[names[0]]);
  const choose = () => replace(code, texts[choice.value]);
  const options = names.map((name) => h("option", {value: name}, name));
  const choice = h("select", {"aria-label": "The request as", onchange: choose}, options);
  const row = h(
    "div",
    {class: "row"},
    choice,
    copyButton(() => code.textContent),
  );
  return h("details", {class: "snippets"}, h("summary", {}, "This request as curl, Python and JavaScript"), row, code);
}
