// The same request as a command and as programs, to be copied.
import {copyButton, h, replace} from "./dom.js";
import {hasKey} from "./api.js";

const MOST_VALUES = 64;
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const WORDS = {true: "True", false: "False", null: "None"};
const python = (value) => Array.isArray(value) ? `[${value.map(python).join(", ")}]`
  : value && typeof value === "object" ? `{${Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${python(inner)}`).join(", ")}}`
  : WORDS[String(value)] && typeof value !== "string" ? WORDS[String(value)] : JSON.stringify(value);
const origin = () => location.origin;

const NUMPY = {BYTES: "object", BOOL: "bool", FP16: "np.float16", FP32: "np.float32", FP64: "np.float64", INT8: "np.int8", INT16: "np.int16", INT32: "np.int32", INT64: "np.int64", UINT8: "np.uint8", UINT16: "np.uint16", UINT32: "np.uint32", UINT64: "np.uint64"};

// inputs as they were read from the form.
export function inferSnippets(detail, inputs, parameters, isStream) {
  const path = `/v2/models/${encodeURIComponent(detail.name)}${detail.versions.length > 1 ? `/versions/${detail.version}` : ""}/infer`;
  const files = inputs.filter((input) => input.file);
  const isPlain = inputs.every((input) => !(input.data instanceof Uint8Array) && !input.form && input.data.length <= MOST_VALUES);
  const body = {inputs: inputs.map(({name, datatype, shape, data}) => ({name, datatype, shape, data: data instanceof Uint8Array || !data ? [] : data})), ...(Object.keys(parameters).length ? {parameters} : {})};
  const key = hasKey() ? " -H \"Authorization: Bearer $KEY\"" : "";
  const accept = isStream ? " -N -H 'Accept: text/event-stream'" : "";
  const form = files.length === inputs.length || (files.length && inputs.every((input) => input.file || input.data.length === 1));
  const curl = form
    ? `curl${accept}${key} ${origin()}${path} ${inputs.map((input) => `-F ${quoted(input.file ? `${input.name}=@${input.file}` : `${input.name}=${input.data[0]}`)}`).join(" ")}`
    : isPlain ? `curl${accept}${key} ${origin()}${path} -d ${quoted(JSON.stringify(body))}` : `# request.json holds ${inputs.map((input) => `${input.name} ${JSON.stringify(input.shape)}`).join(", ")}\ncurl${accept}${key} ${origin()}${path} -d @request.json`;
  const array = (input) => input.file ? `np.array([open(${python(input.file)}, "rb").read()], dtype=object).reshape(${python(input.shape || [1])})`
    : input.data instanceof Uint8Array || input.data.length > MOST_VALUES ? `np.zeros(${python(input.shape)}, dtype=${NUMPY[input.datatype]})  # your values`
    : `np.array(${python(input.data)}, dtype=${NUMPY[input.datatype] || "np.float32"}).reshape(${python(input.shape)})`;
  const client = ["import numpy as np", "import tritonclient.http as http", "", `client = http.InferenceServerClient(${python(location.host)})`, "inputs = []",
    ...inputs.flatMap((input) => [`values = ${array(input)}`, `inputs.append(http.InferInput(${python(input.name)}, values.shape, ${python(input.datatype)}))`, "inputs[-1].set_data_from_numpy(values)"]),
    `answer = client.infer(${python(detail.name)}, inputs${hasKey() ? ', headers={"Authorization": "Bearer " + key}' : ""})`,
    ...detail.serving.outputs.map((output) => `print(answer.as_numpy(${python(output.name)}))`)].join("\n");
  const headers = [...(hasKey() ? ["Authorization: `Bearer ${key}`"] : []), ...(isStream ? ['Accept: "text/event-stream"'] : [])];
  const script = [`const answer = await fetch(${JSON.stringify(origin() + path)}, {`, '  method: "POST",', ...(headers.length ? [`  headers: {${headers.join(", ")}},`] : []),
    `  body: JSON.stringify(${JSON.stringify(isPlain ? body : {inputs: "…"})}),`, "});", isStream ? "for await (const chunk of answer.body) console.log(new TextDecoder().decode(chunk));" : "console.log(await answer.json());"].join("\n");
  return snippetBox({curl, "Python, tritonclient": client, JavaScript: script});
}

export function chatSnippets(model, request) {
  const key = hasKey() ? " -H \"Authorization: Bearer $KEY\"" : "";
  const path = `${origin()}/v1/chat/completions`;
  const options = Object.entries(request).filter(([name]) => !["model", "messages", "stream", "stream_options"].includes(name));
  return snippetBox({
    curl: `curl -N${key} ${path} -d ${quoted(JSON.stringify({...request, stream: true}))}`,
    "Python, openai": ["from openai import OpenAI", "", `client = OpenAI(base_url=${python(`${origin()}/v1`)}, api_key=${hasKey() ? "key" : '"none"'})`, "stream = client.chat.completions.create(",
      `    model=${python(model)},`, `    messages=${python(request.messages)},`, ...options.map(([name, value]) => `    ${name}=${python(value)},`), "    stream=True,", ")", "for chunk in stream:", "    if chunk.choices:", '        print(chunk.choices[0].delta.content or "", end="", flush=True)'].join("\n"),
    JavaScript: [`const answer = await fetch(${JSON.stringify(path)}, {`, '  method: "POST",', ...(hasKey() ? ["  headers: {Authorization: `Bearer ${key}`},"] : []), `  body: JSON.stringify(${JSON.stringify({...request, stream: true})}),`, "});", "for await (const chunk of answer.body) console.log(new TextDecoder().decode(chunk));"].join("\n"),
  });
}

function snippetBox(texts) {
  const code = h("pre", {class: "code", tabindex: "0"});
  const choice = h("select", {"aria-label": "The request as", onchange: () => replace(code, texts[choice.value])}, Object.keys(texts).map((name) => h("option", {value: name}, name)));
  replace(code, texts[choice.value || Object.keys(texts)[0]]);
  return h("details", {class: "snippets"}, h("summary", {}, "This request as curl, Python and JavaScript"), h("div", {class: "row"}, choice, copyButton(() => code.textContent)), code);
}
