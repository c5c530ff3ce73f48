// Many episodes: where they go, where subtasks are done, where they end, and what never works.

import { button, count, get, make } from "grue/dom";
import { GameMap } from "grue/map";

const SHOWN = 12;
const MOST_ROOMS = 3;

/** A share in percent. Some are never none, and not all are never all. */
export function percent(number, of) {
  const share = Math.round((100 * number) / of);
  if (share === 0 && number > 0) return "<1%";
  return share === 100 && number < of ? ">99%" : `${share}%`;
}

export class ManyEpisodes {
  constructor(episode, say) {
    this.episode = episode;
    this.say = say;
    this.begin();
  }

  begin() {
    this.told = null;
    this.number = (this.number ?? 0) + 1;
    this.playing = false;
  }

  update(box) {
    this.box = box;
    const { subject, source, mind } = this.episode;
    if (subject?.kind !== "run" || !source.live || !mind) {
      box.replaceChildren(make("p", { class: "soft" }, source.live ?
        "There is no agent that could play." : "This file holds one episode."));
      return;
    }
    const keep = { count: get("many-count")?.value, epsilon: get("many-epsilon")?.value };
    box.replaceChildren(this.controls(subject, keep), ...this.results());
  }

  controls(subject, keep) {
    const field = (id, label, value, most) => make("label", null, `${label} `, make("input", {
      type: "number", id, min: id === "many-count" ? 1 : 0, max: most, step: "any", value }));
    return make("div", { class: "controls" },
      field("many-count", "episodes", keep.count ?? "1000", 10000),
      field("many-epsilon", "ε", keep.epsilon ?? String(subject.epsilonEnd), 1),
      button(this.playing ? "Stop" : "Play them", "Plays them in batches of one program",
        () => this.toggle(), { id: "many-play" }),
      make("progress", { max: this.told?.wanted ?? 1, value: String(this.told?.episodes ?? 0) }));
  }

  toggle() {
    if (this.playing) {
      this.begin();
      this.update(this.box);
    } else {
      this.say(() => this.play());
    }
  }

  async play() {
    const { source, subject, mind, chance } = this.episode;
    const number = this.number;
    const asked = { subject: subject.number, step: mind.step, seed: chance.seed,
      count: Math.round(Number(get("many-count").value)), epsilon: Number(get("many-epsilon").value) };
    const { batch } = await source.ask("episodes", asked);
    this.playing = true;
    try {
      do {
        const told = await source.ask("more-episodes", { batch });
        if (this.number !== number) return;
        this.told = told;
        if (this.box.isConnected) this.update(this.box);
      } while (!this.told.finished);
    } finally {
      if (this.number === number) {
        this.playing = false;
        if (this.box.isConnected) this.update(this.box);
      }
    }
  }

  results() {
    const { told } = this;
    if (!told) return [make("p", { class: "soft" }, "Plays the agent many times and counts: how often " +
      "each room is visited, where subtasks are done, where episodes end, and which commands never work.")];
    const { stage } = this.episode;
    const share = (number) => percent(number, told.episodes);
    const ends = Object.entries(told.ends).filter(([, number]) => number)
      .map(([name, number]) => `${share(number)} ${name === "limit" ? "reach the limit" : name}`);
    const parts = [make("p", null, make("strong", null, count(told.episodes, "episode")), `: `,
      ends.join(", "), `; mean score ${(told.score / told.episodes).toFixed(2)}`,
      stage.maxScore === null ? "" : ` of ${stage.maxScore}`,
      `, ${(told.steps / told.episodes).toFixed(1)} steps.`)];
    if (told.rooms && stage.map) parts.push(this.map(told, stage, share));
    else parts.push(make("p", { class: "soft" }, "The rooms of this game are not known."));
    parts.push(make("div", { class: "columns" }, this.subtasks(told, stage, share),
      this.commands(told)));
    return parts;
  }

  map(told, stage, share) {
    const world = this.episode.moments[0].world;
    const most = Math.max(...told.rooms.steps, 1);
    const notes = told.rooms.steps.map((steps, room) => {
      const lines = [[`visited in ${share(told.rooms.episodes[room])}`, "soft"]];
      const done = told.rooms.subtasks[room].reduce((a, b) => a + b, 0);
      const [won, lost, limit] = told.rooms.ends[room];
      if (done) lines.push([`${count(done, "subtask")} done`, "gain"]);
      if (won + lost + limit) {
        lines.push([`${share(won + lost + limit)} end here` + (won ? `, ${share(won)} win` : ""),
          lost + limit > won ? "loss" : "gain"]);
      }
      return lines;
    });
    const map = new GameMap(stage.map, world, notes);
    map.show(world, [], { share: told.rooms.steps.map((steps) => steps / most), notes });
    return make("div", { class: "heatmap" }, map.svg);
  }

  subtasks(told, stage, share) {
    const rows = stage.subtasks.map((name, number) => make("tr", null,
      make("td", null, name), make("td", { class: "soft where" }, this.where(told, stage, number)),
      make("td", { class: "number" }, share(told.subtasks[number]))));
    return make("div", null, make("h3", null, "Subtasks done"),
      make("table", { id: "many-subtasks" }, make("tbody", null, rows)));
  }

  /** The rooms in which a subtask is done, those with most first. */
  where(told, stage, subtask) {
    if (!told.rooms || !stage.map) return "";
    const found = told.rooms.subtasks.map((done, room) => [done[subtask], stage.map.rooms[room].name])
      .filter(([done]) => done).sort(([a], [b]) => b - a);
    const names = found.slice(0, MOST_ROOMS).map(([done, name]) => (found.length === 1 ? name :
      `${name} ${percent(done, told.subtasks[subtask])}`));
    return names.join(", ") + (found.length > MOST_ROOMS ? ", …" : "");
  }

  commands(told) {
    const never = told.commands.filter((one) => !one.worked).slice(0, SHOWN);
    const rows = never.map((one) => make("tr", null, make("td", null, one.command),
      make("td", { class: "number" }, one.tried.toLocaleString("en"))));
    return make("div", null, make("h3", null, "Tried most and never worked"),
      never.length ? make("table", null, make("tbody", null, rows)) :
        make("p", { class: "soft" }, "Every command that was tried worked at least once."));
  }
}
