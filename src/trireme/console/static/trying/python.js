// Values and requests as Python, over gRPC where the answer is a stream.
import {hasKey} from "../parts/api.js";
import {HALVES, sizeOf} from "../parts/tensors.js";

const WORDS = {true: "True", false: "False", null: "None"};
const NUMPY = {BYTES: "object", BOOL: "bool", BF16: "ml_dtypes.bfloat16"};
export const KEY = 'os.environ["KEY"]';

const isText = (value) => typeof value === "string";
export const program = (...lines) => lines.flat().filter(isText).join("\n");

export function python(value) {
	if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
	if (value && typeof value === "object") {
		const members = Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${python(inner)}`);
		return `{${members.join(", ")}}`;
	}
	return isText(value) ? JSON.stringify(value) : WORDS[String(value)] || String(value);
}

export function tritonclient(detail, inputs, parameters, isStream, isPlain, saved) {
	const kind = isStream ? "grpc" : "http";
	const port = isStream ? `${location.hostname}:${detail.grpc_port || 8001}` : location.host;
	const tls = (isStream ? detail.grpc_has_tls : location.protocol === "https:") ? ", ssl=True" : "";
	const key = hasKey() ? `, headers={"authorization": "Bearer " + ${KEY}}` : "";
	const options = Object.entries(parameters).map(([name, value]) => `${name}=${python(value)}`); // of a sequence
	const version = detail.versions.length > 1 ? [`model_version=${python(String(detail.version))}`] : [];
	const given = [python(detail.name), "inputs", ...version, ...options].join(", ");
	const outputs = detail.serving.outputs.map((output) => `print(answer.as_numpy(${python(output.name)}))`);
	const read = inputs.filter((input) => !input.file && !isPlain(input));
	const hasLists = read.some(isListed);
	const imports = [hasLists && "json", hasKey() && "os", isStream && "queue"].filter(Boolean);
	return program(
		imports.map((name) => `import ${name}`),
		imports.length > 0 && "",
		inputs.some(({datatype}) => datatype === "BF16") && "import ml_dtypes",
		"import numpy as np",
		`import tritonclient.${kind} as ${kind}`,
		"",
		`client = ${kind}.InferenceServerClient(${python(port)}${tls})`,
		read.length > 0 && `request = open(${python(saved.name)}, "rb").read()`,
		hasLists && `head = json.loads(request[:${saved.headBytes}])`,
		"inputs = []",
		inputs.flatMap((input, at) => [
			`values = ${array(input, isPlain) || readArray(inputs, at, saved)}`,
			`inputs.append(${kind}.InferInput(${python(input.name)}, values.shape, ${python(input.datatype)}))`,
			"inputs[-1].set_data_from_numpy(values)",
		]),
		isStream ? streamed(given, key) : [`answer = client.infer(${given}${key})`, ...outputs],
	);
}

const streamed = (given, key) => `responses = queue.Queue()
client.start_stream(lambda result, error: responses.put((result, error))${key})
client.async_stream_infer(${given}, enable_empty_final_response=True)
while True:
    answer, error = responses.get()
    if error is not None:
        client.stop_stream(cancel_requests=True)
        raise error
    response = answer.get_response()
    for output in response.outputs:
        print(output.name, answer.as_numpy(output.name))
    if response.parameters["triton_final_response"].bool_param:
        break
client.stop_stream()`;

const numpyKind = (datatype) => NUMPY[datatype] || `np.${datatype.toLowerCase().replace("fp", "float")}`;
const isListed = ({data, datatype}) => Array.isArray(data) && !HALVES[datatype];

function array({datatype, shape, data, file}, isPlain) {
	if (file) return `np.array([open(${python(file)}, "rb").read()], dtype=object).reshape(${python(shape || [1])})`;
	return isPlain({data}) ? `np.array(${python(data)}, dtype=${numpyKind(datatype)}).reshape(${python(shape)})` : "";
}

function readArray(inputs, at, {headBytes}) {
	const {datatype, shape} = inputs[at];
	const kind = numpyKind(datatype);
	const form = `.reshape(${python(shape)})`;
	if (isListed(inputs[at])) return `np.array(head["inputs"][${at}]["data"], dtype=${kind})${form}`;
	const begin = inputs.slice(0, at).reduce((sum, input) => sum + wireBytes(input), headBytes);
	return `np.frombuffer(request, ${kind}, ${sizeOf(shape)}, ${begin})${form}`;
}

const wireBytes = (input) => (isListed(input) ? 0 : input.data.length * (Array.isArray(input.data) ? 2 : 1));

export function requests(address, {form, isRaw, accept}) {
	const part = ({name, file, value}) => `(${python(name)}, ${file ? `open(${python(file)}, "rb")` : python(value)})`;
	const parts = (isWanted) => form.filter(isWanted).map(part).join(", ");
	const data = parts(({file}) => !file);
	const key = hasKey() && `"Authorization": "Bearer " + ${KEY}`;
	const headers = [key, accept && `"Accept": "${accept}"`].filter(Boolean);
	return program(
		key && ["import os", ""],
		"import requests",
		"",
		"answer = requests.post(",
		`    ${python(address)},`,
		`    files=[${parts(({file}) => file)}],`,
		data !== "" && `    data=[${data}],`,
		headers.length > 0 && `    headers={${headers.join(", ")}},`,
		accept && "    stream=True,",
		")",
		"answer.raise_for_status()",
		accept
			? ["for line in answer.iter_lines(decode_unicode=True):", "    print(line)"]
			: `print(answer.${isRaw ? "content" : "json()"})`,
	);
}
