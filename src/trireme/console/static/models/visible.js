// The lines of a long table that can be seen, or nearly. All are equally high.
import {rows} from "../parts/live.js";
import {Line} from "./line.js";

const NEAR = 600; // pixels beyond the window
const USUAL_HEIGHT = 46;

export class VisibleLines {
	constructor(body) {
		this.body = body;
		this.order = []; // the ids of all rows
		this.lines = new Map(); // those that are there
		this.frame = 0;
		this.move = () => {
			this.frame ||= requestAnimationFrame(() => {
				this.frame = 0;
				this.#place();
			});
		};
		this.ending = new AbortController();
		const {signal} = this.ending;
		window.addEventListener("scroll", this.move, {passive: true, signal});
		this.sizes = new ResizeObserver(this.move); // also tells that the table has come onto the page
		this.sizes.observe(body);
		window.addEventListener("resize", this.move, {signal});
	}

	stop() {
		this.ending.abort();
		this.sizes.disconnect();
		cancelAnimationFrame(this.frame);
	}

	set(order) {
		this.order = order;
		this.#place();
		this.draw();
	}

	draw() {
		for (const [id, line] of this.lines) {
			const row = rows.get(id);
			if (row !== line.row || row.stepAt !== line.stepAt) line.draw(row);
		}
	}

	#place() {
		const {body, order} = this;
		const height = (body.firstChild && body.firstChild.offsetHeight) || USUAL_HEIGHT;
		const above = -body.getBoundingClientRect().top;
		const most = Math.ceil((window.innerHeight + 2 * NEAR) / height);
		const from = Math.max(0, Math.min(order.length - most, Math.floor((above - NEAR) / height)));
		const wanted = order.slice(from, from + most);
		body.style.paddingTop = `${from * height}px`;
		body.style.paddingBottom = `${(order.length - from - wanted.length) * height}px`;
		this.#fill(wanted, from);
	}

	#fill(wanted, from) {
		const {body, lines} = this;
		const isWanted = new Set(wanted);
		for (const [id, line] of lines) {
			const row = rows.get(id);
			if (isWanted.has(id) && row.backend === line.row.backend) continue;
			line.node.remove();
			lines.delete(id);
		}
		let next = body.firstChild;
		wanted.forEach((id, at) => {
			const line = lines.get(id) || this.#create(id);
			const index = String(from + at + 2);
			if (line.node.getAttribute("aria-rowindex") !== index) line.node.setAttribute("aria-rowindex", index);
			if (line.node === next) next = next.nextSibling;
			else body.insertBefore(line.node, next);
		});
	}

	#create(id) {
		const line = new Line(rows.get(id));
		line.draw(line.row);
		this.lines.set(id, line);
		return line;
	}
}
