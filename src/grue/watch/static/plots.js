// Plots on canvases: values and heads over an episode, and curves over training.

import { make, short } from "grue/dom";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A canvas as wide as its place, sharp on every screen. */
function prepared(canvas, height,
  wide = canvas.clientWidth || canvas.parentElement?.clientWidth || 600) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(wide * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.clearRect(0, 0, wide, height);
  pen.font = "11px system-ui, sans-serif";
  return [pen, wide];
}

function bounds(series) {
  let low = Infinity;
  let high = -Infinity;
  for (const values of series) {
    for (const value of values) {
      if (value === null || value === undefined) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

/** With one digit, and without the sign of a zero. */
function tenths(value) {
  return (Math.round(value * 10) / 10 + 0).toFixed(1);
}

/** A line through values; where there are many, the range in each pixel. */
function stroke(pen, values, x, y, style) {
  pen.strokeStyle = style.colour;
  pen.lineWidth = style.width ?? 1.6;
  pen.setLineDash(style.dash ?? []);
  pen.beginPath();
  let open = false;
  let pixel = null;
  let range = null;
  const flush = () => {
    if (!range) return;
    pen[open ? "lineTo" : "moveTo"](pixel, y(range.first));
    if (range.low < range.high) {
      pen.lineTo(pixel, y(range.low));
      pen.lineTo(pixel, y(range.high));
    }
    pen.lineTo(pixel, y(range.last));
    open = true;
    range = null;
  };
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at];
    if (value === null || value === undefined) {
      flush();
      open = false;
      continue;
    }
    const place = Math.round(x(at) * 2) / 2;
    if (place !== pixel) flush();
    pixel = place;
    range ??= { first: value, low: value, high: value, last: value };
    range.low = Math.min(range.low, value);
    range.high = Math.max(range.high, value);
    range.last = value;
  }
  flush();
  pen.stroke();
  pen.setLineDash([]);
}

/** Value and head at every step of the line; a click goes there. */
export class Timeline {
  constructor(episode, box) {
    this.episode = episode;
    this.canvas = make("canvas", { "aria-hidden": "true", class: "timeline" });
    this.legend = make("p", { class: "legend" });
    this.compared = null;
    this.still = make("canvas");
    this.drawn = null;
    box.replaceChildren(this.legend, this.canvas);
    const goTo = (event) => {
      const place = (event.offsetX - 40) / Math.max(1, this.canvas.clientWidth - 52);
      this.episode.goTo(Math.round(place * (this.episode.line.length - 1)));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      goTo(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons && goTo(event));
  }

  values(mind, line) {
    const brief = this.episode.table(this.episode.brief, mind);
    return line.map((id) => brief.get(id)?.value ?? null);
  }

  /** All but the cursor is drawn once, and again only when something of it has changed. */
  update() {
    const { line, cursor } = this.episode;
    const wide = this.canvas.clientWidth || this.canvas.parentElement?.clientWidth || 600;
    const key = [line.length, line.at(-1), this.episode.version, this.episode.mindsKey,
      this.compared, wide, window.devicePixelRatio, colour("--ink")].join(" ");
    if (key !== this.drawn) {
      this.still.style.width = `${wide}px`;
      this.draw(...prepared(this.still, 96, wide));
      this.legend.replaceChildren(...this.keys());
      this.drawn = key;
    }
    const [pen] = prepared(this.canvas, 96, wide);
    pen.drawImage(this.still, 0, 0, wide, 96);
    pen.fillStyle = colour("--ink");
    const last = Math.max(1, line.length - 1);
    pen.fillRect(39 + (cursor / last) * (wide - 52), 0, 2, 96);
  }

  draw(pen, wide) {
    const { episode } = this;
    const { line } = episode;
    const last = Math.max(1, line.length - 1);
    const x = (at) => 40 + (at / last) * (wide - 52);
    const mine = episode.mind ? this.values(episode.mind, line) : [];
    const theirs = episode.other ? this.values(episode.other, line) : [];
    const rival = this.compared !== null && episode.mind ?
      this.values(episode.mind, episode.pathTo(this.compared).slice(0, line.length)) : [];
    const [low, high] = bounds([mine, theirs, rival]);
    const y = (value) => 8 + (1 - (value - low) / (high - low)) * 54;
    pen.fillStyle = colour("--soft");
    if (episode.mind) {
      pen.fillText(tenths(high), 4, 14);
      pen.fillText(tenths(low), 4, 64);
      stroke(pen, rival, x, y, { colour: colour("--branch"), dash: [4, 3] });
      stroke(pen, theirs, x, y, { colour: colour("--other") });
      stroke(pen, mine, x, y, { colour: colour("--accent") });
      this.heads(pen, line, x, wide);
    }
    this.events(pen, line, x);
  }

  keys() {
    const { episode } = this;
    if (!episode.mind) return [make("span", null, "rewards over the episode")];
    const key = (kind, text) => make("span", null, make("i", { class: kind }), text);
    return [key("line", "value: the largest Q of a candidate"), key("strip", "head"),
      key("dot", "reward"),
      episode.other ? key("line other", "the other agent's value") : "",
      this.compared !== null ? key("line branch", "the branch compared with") : ""];
  }

  heads(pen, line, x, wide) {
    const step = Math.max(1, (wide - 52) / Math.max(1, line.length - 1));
    const brief = this.episode.table(this.episode.brief, this.episode.mind);
    const colours = [0, 1, 2, 3, 4, 5, 6, 7].map((head) => colour(`--h${head}`));
    let painted = -1;
    line.forEach((id, at) => {
      const head = brief.get(id)?.head;
      const left = Math.max(40, Math.floor(x(at) - step / 2));
      if (head === undefined || left === painted) return;
      painted = left;
      pen.fillStyle = colours[head % 8];
      pen.fillRect(left, 72, Math.min(Math.ceil(step), wide - 12 - left), 9);
    });
  }

  events(pen, line, x) {
    const [gain, loss] = [colour("--gain"), colour("--loss")];
    for (let at = 0; at < line.length; at += 1) {
      const { reward } = this.episode.moments[line[at]];
      if (!reward) continue;
      pen.fillStyle = reward > 0 ? gain : loss;
      pen.beginPath();
      pen.arc(x(at), 89, 3.5, 0, 7);
      pen.fill();
    }
  }
}

/** A curve over training, with marks at checkpoints. */
export function curve(canvas, { steps, lines, planned, marks = [], at = null, limits = null }) {
  const [pen, wide] = prepared(canvas, 130);
  const end = Math.max(planned ?? 0, steps.at(-1) ?? 1);
  const x = (step) => 40 + (step / end) * (wide - 52);
  const [low, high] = limits ?? bounds(lines.map((line) => line.values));
  const y = (value) => 8 + (1 - (value - low) / (high - low)) * 96;
  pen.fillStyle = colour("--soft");
  pen.strokeStyle = colour("--line");
  for (const value of [low, high]) {
    pen.fillText(+value.toPrecision(3), 4, y(value) + 4);
    pen.beginPath();
    pen.moveTo(40, y(value));
    pen.lineTo(wide - 12, y(value));
    pen.stroke();
  }
  pen.fillText("0", 38, 124);
  pen.textAlign = "right";
  pen.fillText(`${short(end)} steps`, wide - 10, 124);
  pen.textAlign = "left";
  for (const mark of marks) {
    pen.fillStyle = colour(mark === at ? "--accent" : "--soft");
    pen.beginPath();
    pen.arc(x(mark), 110, mark === at ? 4.5 : 2.5, 0, 7);
    pen.fill();
  }
  for (const line of lines) {
    const own = line.steps ?? steps;
    stroke(pen, line.values, (n) => x(own[n]), y, { colour: colour(line.colour), width: 1.8 });
  }
}
