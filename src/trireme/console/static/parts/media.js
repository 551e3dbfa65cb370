// Images and sounds in memory. Their addresses hold the data until they are given back: whoever takes such a node off
// the page says so with `releaseMedia`.
import {h} from "./dom.js";

const addresses = new WeakMap();
const forgotten = new FinalizationRegistry((address) => URL.revokeObjectURL(address)); // made when its place was gone

export function mediaNode(data, type) {
	const address = URL.createObjectURL(new Blob([data], {type}));
	const node = type.startsWith("image/")
		? h("img.preview", {src: address, alt: "Image that the model made"})
		: h("audio", {controls: true, src: address});
	addresses.set(node, address);
	forgotten.register(node, address, node);
	return node;
}

export function releaseMedia(node) {
	for (const element of node.querySelectorAll("img, audio")) {
		const address = addresses.get(element);
		if (!address) continue;
		URL.revokeObjectURL(address);
		addresses.delete(element);
		forgotten.unregister(element);
	}
}
