// Inputs that are files: as they are, or made into pixels or samples by the browser.
import {bytes, choice, h, note, numberField, replace} from "../parts/dom.js";
import {batched, encodeStrings} from "../parts/tensors.js";

export const FILE_WAYS = {file, picture, pixels, samples};

function file(input, serving, picked) {
	const pick = filePicker(input.name, undefined, picked);
	const dims = input.dims.map((size) => (size === -1 ? 1 : size));
	const shape = batched(serving, dims);
	const read = async () => ({shape, data: encodeStrings([await pick.bytes()]), file: pick.name()});
	return {...pick, read};
}

function picture(input, serving, picked) {
	const pick = filePicker(input.name, "image/*", picked);
	return {...pick, read: async () => ({form: await pick.blob(), file: pick.name()})};
}

function pixels(input, serving, picked) {
	const pick = filePicker(input.name, "image/*", picked);
	const isByte = input.datatype === "UINT8";
	const toOne = String(1 / 255);
	const scale = choice("Range of values", [["1", "0 to 255"], [toOne, "0 to 1"]]);
	if (!isByte) scale.value = toOne;
	const node = h("div", pick.node, !isByte && h("label", "Values ", scale));
	const read = async () => {
		const {shape, values} = await pixelsOf(await pick.blob(), input, isByte ? 1 : Number(scale.value));
		return {shape: batched(serving, shape), data: new Uint8Array(values.buffer)};
	};
	return {node, read, stop: pick.stop};
}

async function pixelsOf(blob, input, factor) {
	const dims = input.dims.slice(-3);
	const isFirst = [1, 3].includes(dims[0]);
	const [channels, height, width] = isFirst ? dims : [dims[2], dims[0], dims[1]];
	const image = await createImageBitmap(blob);
	const [high, wide] = [height === -1 ? image.height : height, width === -1 ? image.width : width];
	const brush = new OffscreenCanvas(wide, high).getContext("2d");
	brush.drawImage(image, 0, 0, wide, high);
	image.close();
	const {data} = brush.getImageData(0, 0, wide, high);
	const kind = {UINT8: Uint8Array, FP64: Float64Array}[input.datatype] || Float32Array;
	const values = new kind(channels * high * wide);
	const grey = (at) => (data[at] + data[at + 1] + data[at + 2]) / 3;
	for (let at = 0; at < high * wide; at += 1) {
		for (let channel = 0; channel < channels; channel += 1) {
			const value = channels === 1 ? grey(4 * at) : data[4 * at + channel];
			values[isFirst ? channel * high * wide + at : at * channels + channel] = value * factor;
		}
	}
	const shape = isFirst ? [channels, high, wide] : [high, wide, channels];
	return {shape: input.dims.length === 4 ? [1, ...shape] : shape, values};
}

function samples(input, serving) {
	const pick = filePicker(input.name, "audio/*", () => {});
	const pace = numberField("Samples per second", {value: "16000", min: 1000, max: 192000});
	const read = async () => {
		const context = new OfflineAudioContext(1, 1, Number(pace.value));
		const sound = await context.decodeAudioData((await pick.bytes()).buffer);
		const kind = input.datatype === "FP64" ? Float64Array : Float32Array;
		const channels = Array.from({length: sound.numberOfChannels}, (_, at) => sound.getChannelData(at));
		const mean = (_, at) => channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length;
		const values = kind.from(channels[0], mean);
		const dims = input.dims.map((size) => (size === -1 ? values.length : size));
		return {shape: batched(serving, dims), data: new Uint8Array(values.buffer)};
	};
	return {node: h("div", pick.node, h("label", "Samples per second ", pace)), read, stop: pick.stop};
}

function filePicker(name, accept, picked) {
	const preview = h("div");
	let address = "";
	let isPicked = false;
	const stop = () => {
		URL.revokeObjectURL(address);
		if (isPicked) picked("");
		address = "";
	};
	const show = () => {
		stop();
		const [chosen] = input.files;
		if (chosen) address = URL.createObjectURL(chosen);
		isPicked = Boolean(chosen?.type.startsWith("image/"));
		if (isPicked) picked(address);
		replace(preview, chosen && previewOf(chosen, address));
	};
	const input = h("input", {type: "file", accept, label: `File for ${name}`, onchange: show});
	const blob = async () => {
		if (!input.files.length) throw new Error(`Choose a file for ${name}.`);
		return input.files[0];
	};
	return {
		node: h("div", input, preview),
		blob,
		name: () => input.files[0]?.name || "",
		bytes: async () => new Uint8Array(await (await blob()).arrayBuffer()),
		stop,
	};
}

function previewOf({name, type, size}, src) {
	const image = type.startsWith("image/") && h("img.preview", {src, alt: `Preview of ${name}`});
	return [image || (type.startsWith("audio/") && h("audio", {src, controls: true})), note(`${name}, ${bytes(size)}`)];
}
