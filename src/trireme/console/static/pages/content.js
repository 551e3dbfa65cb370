// What was in a recorded request and in its answer: the beginning of each tensor.
import {bytes, h, replace} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {decode} from "../parts/tensors.js";
import {showOutputs} from "../trying/answers.js";

const RESPONSES = ["No response", "Response"];

export function contentNode(number) {
  const place = h("div.stack", h("p.quiet", "What was in it …"));
  get(`/console/api/contents/${number}`).then(
    (content) => replace(place, sides(content)),
    (error) => replace(place, h("p.quiet", error.message)),
  );
  return place;
}

function sides({inputs, parameters, note, responses, response_count: count}) {
  const settings = Object.keys(parameters).length ? h("pre.code", JSON.stringify(parameters, null, 2)) : null;
  const left = count - responses.length;
  return h(
    "div.two.content",
    h("section", h("h3", "Request"), note && h("p.quiet", note), tensors(inputs), settings),
    h(
      "section",
      h("h3", RESPONSES[count] || `${count} responses`),
      responses.map(tensors),
      left > 0 ? h("p.quiet", `and ${left} more`) : null,
    ),
  );
}

const tensors = (list) => list.map((tensor) => (isWhole(tensor) ? whole(tensor) : begin(tensor)));
const dataOf = ({data}) => Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
const isWhole = (tensor) => tensor.size_bytes === dataOf(tensor).length;

function whole(tensor) {
  return showOutputs([{...tensor, values: decode(tensor.datatype, dataOf(tensor).buffer)}], {});
}

// As a list of values: neither the picture nor the rows of the whole tensor are there.
function begin(tensor) {
  const data = dataOf(tensor);
  const size = `[${tensor.shape.join(", ")}], ${bytes(tensor.size_bytes)}`;
  const words = h("p.quiet", `${tensor.name} ${tensor.datatype} ${size}, of which this is the beginning:`);
  const values = data.length ? decode(tensor.datatype, data.buffer) : [];
  if (!values.length) return h("p.quiet", `${tensor.name} ${tensor.datatype} ${size}`);
  const cut = {name: tensor.name, datatype: tensor.datatype, shape: [values.length], values, isCut: true};
  return h("div", words, showOutputs([cut], {}));
}
