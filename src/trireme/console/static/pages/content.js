// What was in a recorded request and in its answer: the beginning of each tensor.
import {bytes, h, note, replace} from "../parts/dom.js";
import {get} from "../parts/api.js";
import {decode} from "../parts/tensors.js";
import {showOutputs} from "../trying/answers.js";

const RESPONSES = ["No response", "Response"];

export function contentNode(number) {
	const place = h("div.stack", note("What was in it …"));
	get(`/console/api/contents/${number}`).then(
		(content) => replace(place, sides(content)),
		(error) => replace(place, note(error.message)),
	);
	return place;
}

function sides({inputs, parameters, note: leftOut, responses, response_count: count}) {
	const settings = Object.keys(parameters).length > 0 && h("pre.code", JSON.stringify(parameters, null, 2));
	const left = count - responses.length;
	const title = h("h3", RESPONSES[count] || `${count} responses`);
	return h(
		"div.two.content",
		h("section", h("h3", "Request"), leftOut && note(leftOut), tensors(inputs), settings),
		h("section", title, responses.map(tensors), left > 0 && note(`and ${left} more`)),
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
	const {name, datatype, shape, size_bytes: size} = tensor;
	const words = `${name} ${datatype} [${shape.join(", ")}], ${bytes(size)}`;
	const values = decode(datatype, dataOf(tensor).buffer);
	if (!values.length) return note(words);
	const cut = {name, datatype, shape: [values.length], values, isCut: true};
	return h("div", note(`${words}, of which this is the beginning:`), showOutputs([cut], {}));
}
