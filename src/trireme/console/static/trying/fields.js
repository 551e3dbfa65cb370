// The fields of "Try it": for each input the ways in which a person can give it.
import {choice, h, replace, tick} from "../parts/dom.js";
import {shapeText, sizeOf} from "../parts/tensors.js";
import {FILE_WAYS} from "./files.js";
import {MOST_CELLS, WRITTEN_WAYS} from "./written.js";

const WAYS = {...WRITTEN_WAYS, ...FILE_WAYS};
const SEEN = /image|picture|photo|audio|sound|speech|video/i;
const HEARD = /audio|sound|speech|wave|signal/i;

export function createField(input, serving, picked) {
	const ways = waysOf(input, serving);
	const isIncluded = tick({label: `Send ${input.name}`});
	const place = h("div");
	const chosen = choice(`How to give ${input.name}`, ways, () => use(chosen.value));
	let way = {};
	const stop = () => way.stop?.();
	const use = (id) => {
		stop();
		way = WAYS[id](input, serving, picked);
		replace(place, way.node);
	};
	use(ways[0][0]);
	if (input.name === "stream" && serving.generates && serving.is_decoupled && ways[0][0] === "grid") {
		// a language model would send all of its answer at once
		for (const box of [isIncluded, ...place.querySelectorAll("input")]) box.checked = true;
	}
	const words = h("span.quiet", `${input.datatype} ${shapeText(input, serving)}`);
	const name = h("span.name.mono", input.name);
	const legend = h("legend.row", input.optional && isIncluded, name, words, ways.length > 1 && chosen);
	const read = async () => {
		if (input.optional && !isIncluded.checked) return null;
		return {name: input.name, datatype: input.datatype, ...(await way.read())};
	};
	const include = () => (isIncluded.checked = true); // whoever fills it in wants it sent
	place.addEventListener("input", include);
	place.addEventListener("change", include);
	return {node: h("fieldset.field", {data: {input: input.name}}, legend, place), read, stop};
}

function waysOf(input, serving) {
	const {name, dims, datatype} = input;
	const isFloat = datatype === "FP32" || datatype === "FP64";
	const ways = [];
	if (serving.picture_input === name) ways.push(["picture", "Image"]);
	if (datatype === "BYTES") {
		const both = [["text", "Text"], ["file", "File, image or sound"]];
		return [...ways, ...(SEEN.test(name) ? both.reverse() : both), ["json", "JSON"]];
	}
	if (isPictureShape(dims) && (isFloat || datatype === "UINT8")) ways.push(["pixels", "Image"]);
	if (isFloat && isSoundShape(dims) && HEARD.test(name)) ways.push(["samples", "Sound"]);
	if (sizeOf(dims.map((size) => (size === -1 ? 1 : size))) <= MOST_CELLS) ways.push(["grid", "Grid"]);
	ways.push(["json", "JSON"]);
	return ways;
}

function isPictureShape(all) {
	const dims = all.length === 4 && [1, -1].includes(all[0]) ? all.slice(1) : all;
	if (dims.length !== 3) return false;
	const hasChannels = [1, 3].includes(dims[0]) || [1, 3].includes(dims[2]);
	return hasChannels && dims.filter((size) => size === -1 || size >= 8).length === 2;
}

const isSoundShape = (dims) => dims.at(-1) === -1 && dims.slice(0, -1).every((size) => size === 1);
