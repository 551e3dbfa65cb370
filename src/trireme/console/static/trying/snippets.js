// The same request as a command and as programs, to be copied.
import {copyButton, h, replace} from "../parts/dom.js";
import {hasKey} from "../parts/api.js";
import {HALVES, encodeRequest, writeJson} from "../parts/tensors.js";
import {python, requests, tritonclient} from "./python.js";
import {formFields, isBroken} from "./requests.js";

const MOST_VALUES = 64;
const ANSWER = "answer.bin"; // where an answer goes that is not for JSON
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const keyFlag = () => (hasKey() ? ' -H "Authorization: Bearer $KEY"' : "");

const isPlain = (input) => Array.isArray(input.data) && input.data.length <= MOST_VALUES;
const isWritten = (input) => isPlain(input) && !HALVES[input.datatype];
const isSingle = (input) => isWritten(input) && input.data.length === 1;

// inputs as they were read from the form.
export function inferSnippets(detail, inputs, parameters, isStream) {
  const version = detail.versions.length > 1 ? `/versions/${detail.version}` : "";
  const address = `${location.origin}/v2/models/${encodeURIComponent(detail.name)}${version}/infer`;
  const isRaw = !isStream && detail.serving.outputs.some((output) => HALVES[output.datatype]);
  const isFloat = detail.serving.outputs.some((output) => /^FP/.test(output.datatype));
  const sent = {...bodyOf(inputs, parameters, isRaw), isRaw, isFloat};
  const isPicture = inputs.some((input) => input.form);
  return snippetBox(
    {
      curl: curl(address, sent, isStream),
      ...(isPicture
        ? {"Python, requests": requests(address, sent, isStream)}
        : {"Python, tritonclient": tritonclient(detail, inputs, parameters, isStream, isPlain, sent.saved)}),
      JavaScript: script(address, sent, isStream),
    },
    sent.saved,
  );
}

// How a program has the body: {text} that it holds, {form} of files that it reads, or {saved}, a file of its own with
// what is too long to be written down or not for JSON. `isRaw` where the answer is not for JSON.
function bodyOf(inputs, given, isRaw) {
  const parameters = isRaw ? {...given, binary_data_output: true} : given;
  const isPicture = inputs.some((input) => input.form);
  const isNamed = inputs.some((input) => input.file) && inputs.every((input) => input.file || isSingle(input));
  if (isPicture || (isNamed && !Object.keys(given).length)) {
    const more = Object.entries(isRaw ? {binary_data_output: true} : {});
    return {form: [...formFields(inputs), ...more.map(([name, value]) => ({name, value: String(value)}))]};
  }
  if (inputs.every(isWritten)) {
    const listed = inputs.map(({name, datatype, shape, data}) => ({name, datatype, shape, data}));
    return {text: {inputs: listed, ...(Object.keys(parameters).length ? {parameters} : {})}};
  }
  const {body, headers} = encodeRequest(inputs, parameters, false);
  const headBytes = Number(headers["Inference-Header-Content-Length"] || 0);
  const name = headBytes ? "request.bin" : "request.json";
  return {saved: {name, body, headers, headBytes: headBytes || body.length}};
}

function curl(address, {text, form, saved, isRaw}, isStream) {
  const flags = `${isRaw ? ` -o ${ANSWER}` : ""}${isStream ? " -N -H 'Accept: text/event-stream'" : ""}`;
  const begin = `curl${flags}${keyFlag()} ${quoted(address)}`;
  if (text) return `${begin} -d ${quoted(writeJson(text))}`;
  if (saved) {
    const headers = Object.entries(saved.headers).map(([name, value]) => ` -H ${quoted(`${name}: ${value}`)}`);
    return `${begin}${headers.join("")} --data-binary @${saved.name}`;
  }
  const named = (file) => `@"${file.replace(/["\\]/g, "\\$&")}"`;
  const part = ({name, file, value}) =>
    file ? `-F ${quoted(`${name}=${named(file)}`)}` : `--form-string ${quoted(`${name}=${value}`)}`;
  return `${begin} ${form.map(part).join(" ")}`;
}

// Numbers that the language would round stay in the text.
function literal(body) {
  const text = writeJson(body);
  return text === JSON.stringify(JSON.parse(text)) ? `JSON.stringify(${text})` : JSON.stringify(text);
}

function script(address, {text, form, saved, isRaw, isFloat}, isStream) {
  const headers = [
    ...(hasKey() ? ["Authorization: `Bearer ${key}`"] : []),
    ...(isStream ? ['Accept: "text/event-stream"'] : []),
    ...Object.entries(saved ? saved.headers : {}).map(([name, value]) => `"${name}": "${value}"`),
  ];
  const used = [...(text ? [] : ["readFile"]), ...(isRaw ? ["writeFile"] : [])];
  const whole = isRaw
    ? `await writeFile("${ANSWER}", Buffer.from(await answer.arrayBuffer()));`
    : isFloat
      ? "console.log(await answer.text()); // JSON, but for NaN and Infinity, which it may hold"
      : "console.log(await answer.json());";
  const read = (name) => `await readFile(${JSON.stringify(name)})`;
  const said = (text) => (isBroken(text) ? `new Blob([${JSON.stringify(text)}])` : JSON.stringify(text));
  const value = (part) =>
    part.file ? `new Blob([${read(part.file)}]), ${JSON.stringify(part.file)}` : said(part.value);
  const part = (one) => `form.append(${JSON.stringify(one.name)}, ${value(one)});`;
  return [
    ...(used.length ? [`import {${used.join(", ")}} from "node:fs/promises";`, ""] : []),
    ...(form ? ["const form = new FormData();", ...form.map(part)] : []),
    `const answer = await fetch(${JSON.stringify(address)}, {`,
    '  method: "POST",',
    ...(headers.length ? [`  headers: {${headers.join(", ")}},`] : []),
    `  body: ${text ? literal(text) : form ? "form" : read(saved.name)},`,
    "});",
    isStream
      ? "for await (const chunk of answer.body) console.log(new TextDecoder().decode(chunk));"
      : whole,
  ].join("\n");
}

const OPENAI = ["max_tokens", "temperature", "top_p", "seed", "stop", "n", "presence_penalty", "frequency_penalty"];

export function chatSnippets(model, request) {
  const address = `${location.origin}/v1/chat/completions`;
  return snippetBox({
    curl: `curl -N${keyFlag()} ${address} -d ${quoted(JSON.stringify(request))}`,
    "Python, openai": openai(model, request),
    JavaScript: script(address, {text: request}, true),
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

// `saved` is the file that the programs read, where they read one.
function snippetBox(texts, saved) {
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
    saved && h("button", {type: "button", class: "small", onclick: () => save(saved)}, `Save ${saved.name}`),
  );
  const words = saved && `${saved.name} is the body of this request: save it where the program runs.`;
  const note = saved && h("p", {class: "quiet"}, words);
  const title = h("summary", {}, "This request as curl, Python and JavaScript");
  return h("details", {class: "snippets"}, title, row, note, code);
}

function save({name, body}) {
  const address = URL.createObjectURL(new Blob([body]));
  h("a", {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000); // the browser may still ask where to put it
}
