// Step, play at a speed, pause, and jump to any step; with keys for all of it.

import { button, make } from "grue/dom";

const SPEEDS = [1, 2, 5, 10, 30];
const AHEAD = 20; // Moments asked for at once when the play is fast.

export class Transport {
  constructor(episode, say, box) {
    this.episode = episode;
    this.say = say;
    this.speed = 2;
    this.playing = false;
    this.play = button("▶ Play", "Play or pause (space)", () => this.toggle(), { id: "play" });
    this.slider = make("input", { type: "range", id: "place", min: 0, max: 0, value: "0",
      "aria-label": "Step of the episode",
      oninput: () => this.episode.goTo(Number(this.slider.value)) });
    this.place = make("output", { id: "place-name" });
    this.agent = button("Agent goes on", "The agent decides at this step (n)", () => this.agentStep(),
      { id: "agent-step" });
    this.end = button("to the end", "Let the agent play until the episode ends (e)",
      () => this.toEnd(), { id: "to-end" });
    const rate = make("select", { id: "speed", "aria-label": "Speed",
      onchange: (event) => { this.speed = Number(event.target.value); } },
    SPEEDS.map((speed) => make("option", { value: speed, selected: speed === this.speed },
      `${speed} / s`)));
    box.replaceChildren(
      button("|◀", "First step (Home)", () => episode.goTo(0), { "aria-label": "First step" }),
      button("◀", "Step back (←)", () => this.back(), { id: "back", "aria-label": "Step back" }),
      this.play,
      button("▶", "Step on (→)", () => this.forward(), { id: "forward", "aria-label": "Step on" }),
      button("▶|", "Last step (End)", () => episode.goTo(Infinity), { "aria-label": "Last step" }),
      rate, this.slider, this.place, this.agent, this.end);
    document.addEventListener("keydown", (event) => this.key(event));
  }

  update() {
    const { line, cursor, mind, now, source } = this.episode;
    this.slider.max = line.length - 1;
    this.slider.value = cursor;
    this.place.value = `step ${cursor} of ${line.length - 1}`;
    const canAgent = Boolean(mind) && source.live;
    this.agent.hidden = this.end.hidden = !canAgent;
    this.agent.disabled = this.end.disabled = Boolean(now.over);
    this.play.textContent = this.playing ? "⏸ Pause" : "▶ Play";
  }

  back() {
    this.pause();
    this.episode.goTo(this.episode.cursor - 1);
  }

  /** Along the line; at its end the agent goes on. */
  async forward() {
    const { episode } = this;
    if (!episode.atEnd) {
      episode.goTo(episode.cursor + 1);
      return true;
    }
    if (!episode.mind || !episode.source.live || episode.now.over) return false;
    return this.say(() => episode.playAgent(this.playing && this.speed >= 10 ? AHEAD : 1));
  }

  agentStep() {
    this.pause();
    return this.say(() => this.episode.playAgent());
  }

  async toEnd() {
    this.pause();
    const { episode } = this;
    const mine = (this.ending = {});
    for (;;) {
      const before = episode.line.length;
      if (!(await this.say(() => episode.playAgent(50))) || this.ending !== mine) return;
      episode.goTo(Infinity);
      if (episode.now.over || episode.line.length === before) return;
    }
  }

  toggle() {
    if (this.playing) this.pause();
    else this.run();
  }

  pause() {
    this.playing = false;
    this.ending = null;
    this.update();
  }

  async run() {
    this.playing = true;
    this.update();
    while (this.playing) {
      const began = performance.now();
      if (!(await this.forward())) return this.pause();
      const rest = 1000 / this.speed - (performance.now() - began);
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, rest)));
    }
    return undefined;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.episode.now) return;
    if (event.target.closest("input, select, textarea")) return;
    const acts = {
      ArrowLeft: () => this.back(),
      ArrowRight: () => { this.pause(); this.forward(); },
      Home: () => this.episode.goTo(0),
      End: () => this.episode.goTo(Infinity),
      n: () => this.agentStep(),
      e: () => this.toEnd(),
      u: () => this.episode.undo(),
      "/": () => document.getElementById("command").focus(),
    };
    if (event.key === " " && !event.target.closest("button")) acts[" "] = () => this.toggle();
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
}
