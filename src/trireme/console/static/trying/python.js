// Values and requests as Python: over HTTP, or over gRPC where the answer is a stream.
import {hasKey} from "../parts/api.js";

const WORDS = {true: "True", false: "False", null: "None"};
const NUMPY = {BYTES: "object", BOOL: "bool", FP16: "np.float16", FP64: "np.float64", BF16: "np.float32"};
const SEQUENCE = ["sequence_id", "sequence_start", "sequence_end"];

export function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value && typeof value === "object") {
    const members = Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${python(inner)}`);
    return `{${members.join(", ")}}`;
  }
  return typeof value === "string" ? JSON.stringify(value) : WORDS[String(value)] || String(value);
}

export function tritonclient(detail, inputs, parameters, isStream, isPlain) {
  const kind = isStream ? "grpc" : "http";
  const port = isStream ? `${location.hostname}:${detail.grpc_port || 8001}` : location.host;
  const key = hasKey() ? ['headers={"authorization": "Bearer " + key}'] : [];
  const options = SEQUENCE.filter((name) => name in parameters).map((name) => `${name}=${python(parameters[name])}`);
  const version = detail.versions.length > 1 ? [`model_version=${python(String(detail.version))}`] : [];
  const given = [python(detail.name), "inputs", ...version, ...options].join(", ");
  const outputs = detail.serving.outputs.map((output) => `print(answer.as_numpy(${python(output.name)}))`);
  const once = [`answer = client.infer(${[given, ...key].join(", ")})`, ...outputs];
  return [
    ...(isStream ? ["import queue", ""] : []),
    "import numpy as np",
    `import tritonclient.${kind} as ${kind}`,
    "",
    `client = ${kind}.InferenceServerClient(${python(port)})`,
    "inputs = []",
    ...inputs.flatMap((input) => [
      `values = ${array(input, isPlain)}`,
      `inputs.append(${kind}.InferInput(${python(input.name)}, values.shape, ${python(input.datatype)}))`,
      "inputs[-1].set_data_from_numpy(values)",
    ]),
    ...(isStream ? streamed(given, key, outputs) : once),
  ].join("\n");
}

function streamed(given, key, outputs) {
  return [
    "responses = queue.Queue()",
    `client.start_stream(${["lambda result, error: responses.put((result, error))", ...key].join(", ")})`,
    `client.async_stream_infer(${given}, enable_empty_final_response=True)`,
    "while True:",
    "    answer, error = responses.get()",
    "    if error is not None:",
    "        raise error",
    "    response = answer.get_response()",
    "    if response.outputs:",
    ...outputs.map((line) => `        ${line}`),
    '    if response.parameters["triton_final_response"].bool_param:',
    "        break",
    "client.stop_stream()",
  ];
}

function array(input, isPlain) {
  const {datatype, shape, data, file} = input;
  const kind = NUMPY[datatype] || `np.${datatype.toLowerCase().replace("fp", "float")}`;
  if (file) return `np.array([open(${python(file)}, "rb").read()], dtype=object).reshape(${python(shape || [1])})`;
  if (!isPlain(input)) return `np.zeros(${python(shape)}, dtype=${kind})  # your values`;
  return `np.array(${python(data)}, dtype=${kind}).reshape(${python(shape)})`;
}
