// The map of a game as SVG: rooms on a grid, things where they are now, and the trail.

import { draw, make } from "grue/dom";

const GAP = 34;
const LINE = 16;
const HEADER = 24;
const PAD = 9;
const SPARE = 1; // Lines kept free in each room, for things that are carried there.
const STEPS = { north: [0, -1], south: [0, 1], east: [1, 0], west: [-1, 0] };
const OPPOSITE = { north: "south", south: "north", east: "west", west: "east" };
const ORDER = ["supporter", "container", "fitting", "portable"];

const measuring = document.createElement("canvas").getContext("2d");

function width(text, bold = false) {
  measuring.font = `${bold ? "600 " : ""}12px system-ui, sans-serif`;
  return measuring.measureText(text).width;
}

/** The things in a room or on a thing, each with its depth. */
function contents(plan, world, holder, depth = 0) {
  const held = plan.things
    .map((thing, number) => ({ ...thing, number, depth, state: world.things[number][1] }))
    .filter((thing) => world.things[thing.number][0] === holder && thing.kind !== "door");
  held.sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || (a.name < b.name ? -1 : 1));
  return held.flatMap((thing) => [
    thing, ...contents(plan, world, `t${thing.number}`, depth + 1),
  ]);
}

/** Sizes for the whole episode, from how it begins: rooms do not jump when things move. */
function layOut(plan, world, notes) {
  const rooms = plan.rooms.map((room, number) => {
    const rows = contents(plan, world, `r${number}`);
    const widths = notes ? notes[number].map(([text]) => width(text, true) + 2 * PAD) :
      rows.map((row) => width(label(row), true) + 2 * PAD + 14 + row.depth * 12);
    const size = Math.max(92, width(room.name, true) + 2 * PAD + 16, ...widths);
    const lines = notes ? notes[number].length : rows.length + SPARE;
    return { ...room, number, lines, width: size };
  });
  const columns = spread(rooms.map((room) => [room.column, room.width]));
  const height = (room) => HEADER + PAD + room.lines * LINE;
  const rows = spread(rooms.map((room) => [-room.row, height(room)]));
  for (const room of rooms) {
    room.width = columns.sizes.get(room.column);
    room.height = height(room);
    room.x = columns.centres.get(room.column);
    room.y = rows.centres.get(-room.row);
  }
  return { rooms, width: columns.end, height: rows.end };
}

/** The middle of each column or row, as large as its largest room. */
function spread(pairs) {
  const sizes = new Map();
  for (const [place, size] of pairs) sizes.set(place, Math.max(size, sizes.get(place) ?? 0));
  const places = [...sizes.keys()].sort((a, b) => a - b);
  const centres = new Map();
  let end = 0;
  for (let place = places[0]; place <= places.at(-1); place += 1) {
    const size = sizes.get(place) ?? 0;
    centres.set(place, end + size / 2);
    end += size + GAP;
  }
  return { sizes, centres, end: end - GAP };
}

function label(thing) {
  return thing.state ? `${thing.name} (${thing.state})` : thing.name;
}

export class GameMap {
  constructor(plan, world, notes = null) {
    this.plan = plan;
    this.layout = layOut(plan, world, notes);
    this.byName = new Map(this.layout.rooms.map((room) => [room.name, room]));
    const { width: wide, height: high } = this.layout;
    this.svg = draw("svg", {
      viewBox: `-12 -12 ${wide + 24} ${high + 24}`, role: "img", class: "map",
    });
    this.svg.style.maxWidth = `${(wide + 24) * 1.35}px`;
  }

  /** Draws a moment. ``trail`` are the rooms so far, in order; ``heat`` colours rooms instead. */
  show(world, trail = [], heat = null) {
    const parts = [
      ...this.plan.ways.map((way) => this.way(way, world)),
      ...(heat ? [] : this.trail(trail)),
      ...this.layout.rooms.map((room) => this.room(room, world, heat)),
      ...this.plan.ways.map((way) => this.doorOf(way, world)),
    ];
    const here = this.layout.rooms[world.room].name;
    this.svg.setAttribute("aria-label", heat ? "Map with counts" : `Map. You are in: ${here}`);
    this.svg.replaceChildren(...parts.filter(Boolean));
  }

  room(room, world, heat) {
    const left = room.x - room.width / 2;
    const top = room.y - room.height / 2;
    const here = !heat && world.room === room.number;
    const group = draw("g", { class: `room ${here ? "here" : ""}`, "data-room": room.name });
    const frame = { x: left, y: top, width: room.width, height: room.height, rx: 6 };
    group.append(draw("rect", { ...frame, class: "ground" }));
    if (heat) {
      const fill = draw("rect", { ...frame, class: "heat" });
      fill.style.opacity = 0.04 + 0.36 * heat.share[room.number];
      group.append(fill);
    }
    group.append(
      draw("path", { class: "header", d: `M${left} ${top + HEADER}v${6 - HEADER}q0 -6 6 -6h` +
        `${room.width - 12}q6 0 6 6v${HEADER - 6}z` }),
      draw("rect", { ...frame, class: "frame" }),
      draw("text", { x: left + PAD + (here ? 15 : 0), y: top + 16, class: "name" }, room.name),
    );
    if (here) group.append(draw("circle", { cx: left + PAD + 5, cy: top + 12, r: 5, class: "player" }));
    if (heat) group.append(...this.notes(room, heat.notes[room.number], left, top));
    else group.append(...this.things(room, world, left, top));
    return group;
  }

  things(room, world, left, top) {
    const rows = contents(this.plan, world, `r${room.number}`);
    const most = rows.length > room.lines ? room.lines - 1 : room.lines;
    const shown = rows.slice(0, most).map((thing, line) => {
      const x = left + PAD + thing.depth * 12;
      const y = top + HEADER + 15 + line * LINE;
      return draw("g", { class: `thing ${thing.kind}` }, mark(thing.kind, x + 4, y - 4),
        draw("text", { x: x + 14, y }, label(thing)));
    });
    if (rows.length > most) {
      const y = top + HEADER + 15 + most * LINE;
      const rest = rows.slice(most).map(label).join(", ");
      shown.push(draw("text", { x: left + PAD, y, class: "soft" },
        `and ${rows.length - most} more`, draw("title", null, rest)));
    }
    return shown;
  }

  notes(room, notes, left, top) {
    return notes.map(([text, kind], line) =>
      draw("text", { x: left + PAD, y: top + HEADER + 15 + line * LINE, class: kind }, text));
  }

  way(way, world) {
    const [east, south] = STEPS[way.direction];
    const from = side(this.byName.get(way.here), way.direction);
    const to = side(this.byName.get(way.there), OPPOSITE[way.direction]);
    const bend = way.straight ? "L" :
      `C${from[0] + east * 36} ${from[1] + south * 36} ${to[0] - east * 36} ${to[1] - south * 36} `;
    return draw("g", { class: `way ${way.straight ? "" : "bent"}` },
      draw("path", { d: `M${from[0]} ${from[1]}${bend}${to[0]} ${to[1]}` }));
  }

  doorOf(way, world) {
    const door = this.plan.things.findIndex((t) => t.kind === "door" && t.name === way.door);
    if (door < 0) return null;
    const from = side(this.byName.get(way.here), way.direction);
    const to = side(this.byName.get(way.there), OPPOSITE[way.direction]);
    return this.door(door, world, from, to, STEPS[way.direction][0] !== 0);
  }

  door(number, world, from, to, flat) {
    const x = (from[0] + to[0]) / 2;
    const y = (from[1] + to[1]) / 2;
    const state = world.things[number][1];
    const [wide, high] = flat ? [7, 20] : [20, 7];
    const leaf = draw("rect", { x: x - wide / 2, y: y - high / 2, width: wide, height: high, rx: 1.5 });
    leaf.style.fill = state.includes("open") ? "var(--paper)" : this.plan.things[number].colour;
    const text = `${this.plan.things[number].name}: ${state}`;
    const note = state.includes("locked") ? "locked" : state.includes("open") ? "open" : "closed";
    return draw("g", { class: "door" }, leaf, draw("title", null, text),
      draw("text", flat ? { x, y: y - 14, "text-anchor": "middle" } : { x: x + 15, y: y + 4 }, note));
  }

  /** The way so far. Each passage is a line between rooms, stronger the more recent it is. */
  trail(rooms) {
    const passages = [];
    for (let at = 1; at < rooms.length; at += 1) {
      if (rooms[at] !== rooms[at - 1]) passages.push([rooms[at - 1], rooms[at]]);
    }
    const recent = passages.slice(-24);
    return recent.map(([a, b], number) => {
      const [from, to] = [this.layout.rooms[a], this.layout.rooms[b]];
      const line = draw("line", { class: "trail", x1: from.x, y1: from.y, x2: to.x, y2: to.y });
      line.style.opacity = 0.08 + 0.5 * ((number + 1) / recent.length) ** 2;
      return line;
    });
  }
}

function side(room, direction) {
  const [east, south] = STEPS[direction];
  return [room.x + (east * room.width) / 2, room.y + (south * room.height) / 2];
}

function mark(kind, x, y) {
  if (kind === "portable") return draw("circle", { cx: x, cy: y, r: 4, class: "mark" });
  if (kind === "fitting") return draw("path", { d: `M${x} ${y - 5}l5 5l-5 5l-5 -5z`, class: "mark" });
  return draw("rect", { x: x - 4, y: y - 4, width: 8, height: 8, rx: 1, class: "mark" });
}

/** What the player carries. */
export function carried(plan, world) {
  return contents(plan, world, "I").map(label);
}

export function noMap(stage) {
  const story = stage.free ? "This story" : "The game of this run";
  return make("p", { class: "empty" }, `${story} does not tell its world: there is no map, and ` +
    "where things are is not known.");
}
