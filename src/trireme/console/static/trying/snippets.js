// The same request as a command and as programs, to be copied.
import {button, choice, copyButton, h, modelPath, note, replace, saveFile} from "../parts/dom.js";
import {hasKey} from "../parts/api.js";
import {HALVES, encodeRequest, writeJson} from "../parts/tensors.js";
import {KEY, program, python, requests, tritonclient} from "./python.js";
import {EVENTS, TEXT_EVENTS, formFields, isBroken} from "./requests.js";

const MOST_VALUES = 64;
const MOST_BYTES = 32000; // a shell takes four times as much, which quotes may become
const ANSWER = "answer.bin"; // where an answer goes that is not for JSON
const text = JSON.stringify;
const quoted = (words) => `'${words.replaceAll("'", "'\\''")}'`;
const keyFlag = () => (hasKey() ? ' -H "Authorization: Bearer $KEY"' : "");

const isPlain = ({data}) =>
	Array.isArray(data) && data.length <= MOST_VALUES && writeJson(data).length < MOST_BYTES;
const isWritten = (input) => isPlain(input) && !HALVES[input.datatype];
const isSingle = (input) => isWritten(input) && input.data.length === 1;

export function inferSnippets(detail, inputs, parameters, isStream) {
	const {name, version, versions, serving} = detail;
	const address = `${location.origin}/v2/models/${modelPath(name, versions.length > 1 && version)}/infer`;
	const isHalf = serving.outputs.some((output) => HALVES[output.datatype]);
	const accept = isStream && (isHalf ? EVENTS : TEXT_EVENTS);
	const sent = {...bodyOf(inputs, parameters, isHalf), isRaw: isHalf && !isStream, accept};
	const texts = {curl: curl(address, sent)};
	if (inputs.some((input) => input.form)) texts["Python, requests"] = requests(address, sent);
	else texts["Python, tritonclient"] = tritonclient(detail, inputs, parameters, isStream, isPlain, sent.saved);
	texts.JavaScript = script(address, sent);
	return snippetBox(texts, sent.saved);
}

// How a program has the body: {json} that it holds, {form} of files that it reads, or {saved}, a file with all of it.
// `isRaw` where the answer is not for JSON.
function bodyOf(inputs, given, isRaw) {
	const isPicture = inputs.some((input) => input.form);
	const isNamed = inputs.some((input) => input.file) && inputs.every((input) => input.file || isSingle(input));
	if (isPicture || (isNamed && !Object.keys(given).length)) return {form: formFields(inputs, given, isRaw)};
	const {body, headers} = encodeRequest(inputs, given, isRaw);
	if (inputs.every(isWritten) && body.length < MOST_BYTES) return {json: new TextDecoder().decode(body)};
	const headBytes = Number(headers["Inference-Header-Content-Length"] || 0);
	const name = headBytes ? "request.bin" : "request.json";
	return {saved: {name, body, headers, headBytes: headBytes || body.length}};
}

function curl(address, {json, form, saved, isRaw, accept}) {
	const flags = `${isRaw ? ` -o ${ANSWER}` : ""}${accept ? ` -N -H 'Accept: ${accept}'` : ""}`;
	const begin = `curl${flags}${keyFlag()} ${quoted(address)}`;
	if (json) return `${begin} -d ${quoted(json)}`;
	if (saved) {
		const headers = Object.entries(saved.headers).map(([name, value]) => ` -H ${quoted(`${name}: ${value}`)}`);
		return `${begin}${headers.join("")} --data-binary @${saved.name}`;
	}
	const part = ({name, file, value}) =>
		file
			? `-F ${quoted(`${name}=@"${file.replace(/["\\]/g, "\\$&")}"`)}`
			: `--form-string ${quoted(`${name}=${value}`)}`;
	return `${begin} ${form.map(part).join(" ")}`;
}

// Numbers that the language would round stay in the text.
const literal = (json) => (json === text(JSON.parse(json)) ? `JSON.stringify(${json})` : text(json));

function script(address, {json, form, saved, isRaw, accept}) {
	const headers = [
		hasKey() && "Authorization: `Bearer ${process.env.KEY}`",
		accept && `Accept: "${accept}"`,
		...Object.entries(saved?.headers || {}).map(([name, value]) => `"${name}": "${value}"`),
	].filter(Boolean);
	const used = [!json && "readFile", isRaw && "writeFile"].filter(Boolean);
	const read = (name) => `await readFile(${text(name)})`;
	const said = (words) => (isBroken(words) ? `new Blob([${text(words)}])` : text(words));
	const part = ({name, file, value}) =>
		`form.append(${text(name)}, ${file ? `new Blob([${read(file)}]), ${text(file)}` : said(value)});`;
	return program(
		used.length > 0 && [`import {${used.join(", ")}} from "node:fs/promises";`, ""],
		form && ["const form = new FormData();", ...form.map(part)],
		`const answer = await fetch(${text(address)}, {`,
		'  method: "POST",',
		headers.length > 0 && `  headers: {${headers.join(", ")}},`,
		`  body: ${json ? literal(json) : form ? "form" : read(saved.name)},`,
		"});",
		accept
			? "for await (const chunk of answer.body) console.log(new TextDecoder().decode(chunk));"
			: isRaw
				? `await writeFile("${ANSWER}", Buffer.from(await answer.arrayBuffer()));`
				: "console.log(await answer.text());",
	);
}

const OPENAI = ["max_tokens", "temperature", "top_p", "seed", "stop", "n", "presence_penalty", "frequency_penalty"];

export function chatSnippets(model, request) {
	const address = `${location.origin}/v1/chat/completions`;
	const json = text(request);
	const saved = {name: "request.json", body: json, headers: {"Content-Type": "application/json"}};
	const sent = {accept: TEXT_EVENTS, ...(json.length < MOST_BYTES ? {json} : {saved})};
	const texts = {curl: curl(address, sent), "Python, openai": openai(model, request)};
	return snippetBox({...texts, JavaScript: script(address, sent)}, sent.saved);
}

function openai(model, {model: _, messages, stream, stream_options: options, ...rest}) {
	const known = Object.entries(rest).filter(([name]) => OPENAI.includes(name));
	const more = Object.entries(rest).filter(([name]) => !OPENAI.includes(name));
	return program(
		hasKey() && ["import os", ""],
		"from openai import OpenAI",
		"",
		`client = OpenAI(base_url=${python(`${location.origin}/v1`)}, api_key=${hasKey() ? KEY : '"none"'})`,
		"stream = client.chat.completions.create(",
		`    model=${python(model)},`,
		`    messages=${python(messages)},`,
		known.map(([name, value]) => `    ${name}=${python(value)},`),
		more.length > 0 && `    extra_body=${python(Object.fromEntries(more))},`,
		`    stream=${python(stream)},`,
		`    stream_options=${python(options)},`,
		")",
		"for chunk in stream:",
		"    if chunk.choices:",
		'        print(chunk.choices[0].delta.content or "", end="", flush=True)',
	);
}

function snippetBox(texts, saved) {
	const [first] = Object.keys(texts);
	const code = h("pre.code", {tabindex: "0"}, texts[first]);
	const options = Object.keys(texts).map((name) => [name]);
	const row = h(
		"div.row",
		choice("The request as", options, (event) => replace(code, texts[event.target.value])),
		copyButton(() => code.textContent),
		saved && button(`Save ${saved.name}`, () => saveFile(saved.name, saved.body), {class: "small"}),
	);
	const words = saved && `${saved.name} is the body of this request: save it where the program runs.`;
	const title = h("summary", "This request as curl, Python and JavaScript");
	return h("details.snippets", title, row, saved && note(words), code);
}
