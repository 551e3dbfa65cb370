// Tensors as pictures, and boxes and masks on the picture that was sent.
import {h, joined} from "../parts/dom.js";
import {asText} from "../parts/tensors.js";

const COLORS = ["#e6550d", "#3182bd", "#31a354", "#756bb1", "#d6b400", "#d62780"];

const MOST_PIXELS = 4e6;
const MOST_SIDE = 8192;

export function isPicture(dims, datatype) {
	const {height, width} = (/UINT8|FP/.test(datatype) && layout(dims)) || {};
	return height * width <= MOST_PIXELS && Math.max(height, width) <= MOST_SIDE;
}

export function picture(values, dims, datatype) {
	const {height, width, channels, isFirst} = layout(dims);
	let [low, high] = [Infinity, -Infinity];
	for (const value of values) {
		low = Math.min(low, value);
		high = Math.max(high, value);
	}
	const [factor, base] = datatype === "UINT8" && high > 1 ? [1, 0] : [255 / (high - low || 1), low];
	const canvas = h("canvas.preview", {width, height, role: "img", label: "Image that the model made"});
	const brush = canvas.getContext("2d");
	const image = brush.createImageData(width, height);
	image.data.fill(255);
	for (let at = 0; at < height * width; at += 1)
		for (let channel = 0; channel < Math.max(3, channels); channel += 1) {
			const from = channels === 1 ? 0 : channel;
			const value = values[isFirst ? from * height * width + at : at * channels + from];
			image.data[4 * at + channel] = (value - base) * factor;
		}
	brush.putImageData(image, 0, 0);
	return canvas;
}

function layout([first, second, third, ...more]) {
	if (more.length) return null;
	if (third === undefined) return first >= 16 && second >= 16 && {height: first, width: second, channels: 1};
	if ([1, 3, 4].includes(third) && first >= 8 && second >= 8) return {height: first, width: second, channels: third};
	const isFirst = [1, 3].includes(first) && second >= 8 && third >= 8;
	return isFirst && {channels: first, height: second, width: third, isFirst};
}

export function overlay(address, box, mask, named) {
	const canvas = h("canvas");
	const image = h("img.preview", {src: address, alt: "The image that was sent, with what the model found"});
	image.addEventListener("load", () => {
		const zoom = Math.max(1, 480 / image.naturalWidth);
		canvas.width = image.naturalWidth * zoom;
		canvas.height = image.naturalHeight * zoom;
		const brush = canvas.getContext("2d");
		if (mask) drawMasks(brush, mask, canvas);
		if (box) drawBoxes(brush, box, named, canvas, zoom);
	});
	return h("div.overlay", image, canvas);
}

function drawBoxes(brush, box, named, canvas, zoom) {
	const unit = Math.max(1, canvas.width / 500);
	brush.lineWidth = 4 * unit;
	brush.font = `bold ${20 * unit}px system-ui, sans-serif`;
	// shares of the image may reach over its edge
	const isShare = !box.datatype.includes("INT") && box.values.every((value) => value <= 1.5);
	const [wide, high] = isShare ? [canvas.width, canvas.height] : [zoom, zoom];
	const places = Array.from(box.values, (value, at) => Number(value) * (at % 2 ? high : wide));
	for (let at = 0; at * 4 < places.length; at += 1) {
		const [left, top, right, bottom] = places.slice(4 * at, 4 * at + 4);
		brush.strokeStyle = brush.fillStyle = COLORS[at % COLORS.length];
		brush.strokeRect(left, top, right - left, bottom - top);
		brush.fillText(wordsOf(named, at), left + 3 * unit, Math.max(20 * unit, top - 6 * unit));
	}
}

function wordsOf({label, score}, at) {
	const [name, sure] = [label?.values[at], score?.values[at]];
	return joined([name !== undefined && asText(name), sure !== undefined && Number(sure).toFixed(2)], " ");
}

function drawMasks(brush, mask, canvas) {
	const [height, width] = mask.shape.slice(-2);
	const each = height * width;
	for (let layer = 0; layer * each < mask.values.length; layer += 1) {
		const color = COLORS[layer % COLORS.length];
		const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
		const layerBrush = new OffscreenCanvas(width, height).getContext("2d");
		const image = layerBrush.createImageData(width, height);
		for (let at = 0; at < each; at += 1)
			if (Number(mask.values[layer * each + at]) > 0.5) image.data.set([red, green, blue, 110], 4 * at);
		layerBrush.putImageData(image, 0, 0);
		brush.drawImage(layerBrush.canvas, 0, 0, canvas.width, canvas.height);
	}
}
