// Over training: the curves of a run, its checkpoints, and another agent at the same moment.

import { count, get, make, short } from "grue/dom";
import { curve } from "grue/plots";

const EVERY = 2000;
const LINES = ["--accent", "--other", "--branch", "--gain"];

export class Training {
  constructor(episode, subjects) {
    this.episode = episode;
    this.subjects = subjects;
    this.column = "fraction";
    this.told = new Map();
    this.box = null;
  }

  get run() {
    return this.episode.subject?.kind === "run" ? this.episode.subject : null;
  }

  /** Asks for the curves now and then, as long as they are on show. */
  async follow() {
    for (;;) {
      if (this.box?.isConnected && this.run && document.visibilityState === "visible") {
        await this.refresh();
      }
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  }

  async refresh() {
    const { source } = this.episode;
    const shown = [this.run, this.subjects().find((s) => s.number === this.episode.other?.run)];
    for (const run of shown) {
      if (!run || !source.live) continue;
      try {
        const told = await source.ask("curves", { subject: run.number }, false);
        const before = this.told.get(run.number);
        this.told.set(run.number, told);
        run.checkpoints = told.checkpoints;
        if (JSON.stringify(before) !== JSON.stringify(told)) this.render();
      } catch (error) {
        if (error.status) this.problem(error.message);
      }
    }
  }

  problem(why) {
    this.box?.replaceChildren(make("p", { class: "soft" }, why));
  }

  update(box) {
    this.box = box;
    if (!this.run) {
      box.replaceChildren(make("p", { class: "soft" }, "A game without an agent: there is no training."));
      return;
    }
    if (!this.episode.source.live) {
      box.replaceChildren(make("p", { class: "soft" }, "This file holds one episode. grue watch " +
        "shows the training of a run."));
      return;
    }
    this.render();
    if (!this.told.has(this.run.number)) this.refresh();
  }

  render() {
    const told = this.told.get(this.run?.number);
    if (!this.box || !this.run) return;
    const focus = document.activeElement?.id;
    this.canvas = make("canvas", { "aria-hidden": "true", class: "curve" });
    this.box.replaceChildren(make("div", { class: "training" },
      make("div", null, this.heading(told), this.canvas),
      make("div", null, this.slider(), this.others())));
    if (focus) get(focus)?.focus();
    if (told?.steps.length) this.plot(told);
  }

  heading(told) {
    if (!told) return make("p", { class: "soft" }, "Reading the curves …");
    const last = told.steps.at(-1) ?? 0;
    const live = last < told.planned;
    const names = Object.keys(told.columns);
    const option = (name) => make("option", { value: name, selected: name === this.column },
      name.replaceAll("_", " "));
    return make("div", { class: "controls" },
      make("label", null, "curve ", make("select", { id: "curve-name", onchange: (event) => {
        this.column = event.target.value;
        this.render();
      } }, names.map(option))),
      make("span", { class: "soft", id: "progress" }, `${last.toLocaleString("en")} of ` +
        `${short(told.planned)} steps · ${count(told.episodes, "episode")} · ` +
        `${count(told.wins, "win")}`), live ? make("span", { class: "live" }, "unfinished") : "");
  }

  plot(told) {
    const other = this.told.get(this.episode.other?.run);
    const lines = [{ values: told.columns[this.column] ?? [], colour: LINES[0] }];
    if (other && this.episode.other.run !== this.run.number && other.columns[this.column]) {
      lines.push({ values: other.columns[this.column], steps: other.steps, colour: LINES[1] });
    }
    const share = ["fraction", "precision", "recall", "admissible", "classifier_accuracy"];
    curve(this.canvas, { steps: told.steps, lines, planned: told.planned,
      marks: told.checkpoints, at: this.episode.mind?.step ?? told.checkpoints.at(-1),
      limits: share.includes(this.column) ? [0, 1] : null });
  }

  slider() {
    const steps = this.run.checkpoints ?? [];
    if (!steps.length) return make("p", { class: "soft" }, "There is no checkpoint yet.");
    const { episode } = this;
    const now = episode.mind?.step ?? steps.at(-1);
    const place = Math.max(0, steps.indexOf(now));
    const text = (at) => `${steps[at].toLocaleString("en")} steps` +
      (at === steps.length - 1 ? " (latest)" : "");
    const label = make("output", { id: "checkpoint-name" }, text(place));
    const input = make("input", { type: "range", id: "checkpoint", min: 0, max: steps.length - 1,
      value: String(place), disabled: steps.length < 2, "aria-label": "Checkpoint of the agent",
      oninput: () => {
        label.value = text(Number(input.value));
        const at = Number(input.value);
        episode.setMind({ run: this.run.number, step: at === steps.length - 1 ? null : steps[at] });
        if (this.told.has(this.run.number)) this.plot(this.told.get(this.run.number));
      } });
    const only = steps.length < 3 ? make("p", { class: "soft" }, "Training with --keep-every STEPS " +
      "keeps more of them.") : "";
    return make("div", { class: "slider" }, make("label", { for: "checkpoint" },
      "what it would do here after "), label, input, only);
  }

  /** A second agent: the same run at another step, or another run on the same game. */
  others() {
    const { episode } = this;
    const choices = this.subjects()
      .filter((s) => s.kind === "run" && s.game === this.run.game && s.checkpoints?.length)
      .flatMap((s) => s.checkpoints.map((step) => ({ run: s.number, step, name: s.name })));
    const chosen = episode.other ? `${episode.other.run}@${episode.other.step}` : "";
    const option = (c) => make("option", { value: `${c.run}@${c.step}`,
      selected: `${c.run}@${c.step}` === chosen }, `${c.name} after ${short(c.step)} steps`);
    return make("label", { class: "others" }, "side by side with ",
      make("select", { id: "other", onchange: (event) => {
        const [run, step] = event.target.value.split("@").map(Number);
        episode.setOther(event.target.value ? { run, step } : null);
        this.refresh();
      } }, make("option", { value: "" }, "nobody"), choices.map(option)));
  }
}
