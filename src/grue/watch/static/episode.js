// The episode on the page: the tree of moments, the line that is shown, and the agents' thoughts.

import { Refused } from "grue/source";

/** An agent: the number of a run and a step of its training, or null for the latest. */
export function mindKey(mind) {
  return `${mind.run}@${mind.step ?? "latest"}`;
}

export class Episode extends EventTarget {
  constructor(source) {
    super();
    this.source = source;
    this.subject = null;
    this.stage = null;
    this.mind = null; // The agent that plays.
    this.other = null; // The agent it is compared with.
    this.busy = false;
    this.clear();
  }

  clear() {
    this.moments = [];
    this.children = [];
    this.branches = [];
    this.line = [];
    this.cursor = 0;
    this.thoughts = new Map();
    this.brief = new Map();
    this.version = (this.version ?? 0) + 1; // Counts what becomes known of values and heads.
  }

  get mindsKey() {
    return [this.mind, this.other].map((mind) => (mind ? mindKey(mind) : "")).join(" ");
  }

  get now() {
    return this.moments[this.line[this.cursor]];
  }

  get atEnd() {
    return this.cursor === this.line.length - 1;
  }

  changed(what = "place") {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  async begin(subject, chance = {}) {
    const told = await this.source.ask("begin", { subject: subject.number, ...chance });
    this.clear();
    this.subject = subject;
    this.stage = told.stage;
    this.name = told.session;
    this.chance = { seed: told.seed, episode: told.episode, epsilon: told.epsilon };
    const agent = subject.kind === "run" && (!this.source.live || subject.checkpoints?.length);
    this.mind = agent ? { run: subject.number, step: null } : null;
    this.learnedAt = subject.checkpoints?.at(-1); // The step of its latest thoughts.
    this.other = null;
    for (const moment of told.moments) this.add(moment);
    this.line = this.moments.map((moment) => moment.id);
    if (!this.source.live) this.takeStored();
    this.changed("episode");
    await this.think();
  }

  takeStored() {
    for (const [id, thoughts] of Object.entries(this.source.stored.thoughts)) {
      this.keepThoughts(this.mind, Number(id), thoughts);
    }
  }

  add(moment) {
    if (this.moments[moment.id]) return;
    if (moment.thoughts && this.mind) this.keepThoughts(this.mind, moment.id, moment.thoughts);
    delete moment.thoughts;
    this.moments[moment.id] = moment;
    this.children[moment.id] = [];
    const siblings = moment.parent === null ? null : this.children[moment.parent];
    if (siblings?.length === 0) {
      moment.branch = this.moments[moment.parent].branch;
      this.branches[moment.branch].tip = moment.id;
    } else {
      moment.branch = this.branches.length;
      this.branches.push({ start: moment.id, tip: moment.id });
    }
    siblings?.push(moment.id);
  }

  /** Asks about this session. If the server was started again, it gets the session back first. */
  async ask(question, asked) {
    try {
      return await this.source.ask(question, { session: this.name, ...asked });
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 410) throw error;
      const moves = this.moments.slice(1).map((m) => [m.parent, m.command, m.by]);
      const told = await this.source.ask("begin", {
        subject: this.subject.number, ...this.chance, moves,
      });
      this.name = told.session;
      return this.source.ask(question, { session: this.name, ...asked });
    }
  }

  // Moving along the line

  goTo(place) {
    this.cursor = Math.max(0, Math.min(place, this.line.length - 1));
    this.changed();
    this.think();
  }

  /** Shows the line through a moment, up to its first end. */
  show(id, cursor = null) {
    const line = this.pathTo(id);
    const place = line.length - 1;
    while (this.children[line.at(-1)].length) line.push(this.children[line.at(-1)].at(-1));
    this.line = line;
    this.goTo(cursor ?? place);
  }

  undo() {
    if (this.cursor > 0) this.goTo(this.cursor - 1);
  }

  // Playing

  /** Gives a command here. Another than before makes a branch. */
  async play(command) {
    return this.extend({ command });
  }

  /** Lets the agent play here. */
  async playAgent(count = 1) {
    return this.extend({ count });
  }

  async extend(what) {
    const before = this.working;
    let done;
    this.working = new Promise((resolve) => { done = resolve; });
    await before; // One after the other, in the order given.
    this.busy = true;
    this.changed("busy");
    try {
      const from = this.now.id;
      const told = await this.ask("play", { at: from, ...what, ...this.asMind(this.mind) });
      for (const moment of told.moments) this.add(moment);
      const last = told.moments.at(-1);
      if (!last) return false;
      const first = this.cursor + 1;
      this.show(last.id, what.count > 1 ? first : null);
      return true;
    } finally {
      this.busy = false;
      this.changed("busy");
      done();
    }
  }

  // Thoughts

  asMind(mind) {
    return mind ? { mind: mind.run, step: mind.step } : {};
  }

  keepThoughts(mind, id, thoughts) {
    const held = thoughts.candidates.map((n) => thoughts.values[n]).filter((v) => v !== null);
    const value = held.length ? held.reduce((a, b) => Math.max(a, b)) : null;
    this.table(this.thoughts, mind).set(id, thoughts);
    const brief = this.table(this.brief, mind);
    if (brief.has(id)) return;
    brief.set(id, { value, head: thoughts.head });
    this.version += 1;
  }

  table(tables, mind) {
    const key = mindKey(mind);
    if (!tables.has(key)) tables.set(key, new Map());
    return tables.get(key);
  }

  thoughtsOf(mind, id) {
    return mind ? this.table(this.thoughts, mind).get(id) : undefined;
  }

  briefOf(mind, id) {
    return mind ? this.table(this.brief, mind).get(id) : undefined;
  }

  /** Gets what the agents on show think now, then their values over the line. */
  async think() {
    try {
      await this.thinkHere();
      await this.thinkAlong();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.refusal = error.message; // A checkpoint may be gone by now.
      this.changed("refused");
    }
  }

  async thinkHere() {
    const at = this.now.id;
    for (const mind of [this.mind, this.other]) {
      if (!mind || this.now.over || this.thoughtsOf(mind, at)) continue;
      const told = await this.ask("thoughts", { moments: [at], ...this.asMind(mind) });
      this.keepThoughts(mind, at, told.thoughts[at]);
      this.changed("thoughts");
    }
  }

  /** The run has learned more: what its latest agent thought is out of date. */
  async thinkAgain() {
    const latest = mindKey({ run: this.subject.number, step: null });
    this.thoughts.delete(latest);
    this.brief.delete(latest);
    this.version += 1;
    this.changed("thoughts");
    await this.think();
  }

  async thinkAlong() {
    // A long line is searched again only when there is something new.
    const all = () => [this.version, this.mindsKey, this.line.length, this.line.at(-1)].join(" ");
    if (this.along || !this.source.live || this.allKnown === all()) return;
    this.along = true;
    this.changed("along");
    try {
      for (;;) {
        const mind = [this.mind, this.other].find((m) => m && this.unknown(m).length);
        if (!mind) {
          this.allKnown = all();
          return;
        }
        const moments = this.unknown(mind).slice(0, 100);
        const told = await this.ask("thoughts", { moments, brief: true, ...this.asMind(mind) });
        const table = this.table(this.brief, mind);
        for (const id of moments) table.set(id, told.thoughts[id]);
        this.version += 1;
        this.changed("thoughts");
      }
    } finally {
      this.along = false;
      this.changed("along");
    }
  }

  unknown(mind) {
    const table = this.table(this.brief, mind);
    return this.line.filter((id) => !table.has(id) && !this.moments[id].over);
  }

  async setMind(mind) {
    this.mind = mind;
    this.changed("thoughts");
    await this.think();
  }

  async setOther(mind) {
    this.other = mind;
    this.changed("thoughts");
    await this.think();
  }

  // Branches: the first command after a moment continues its branch, any other begins a new one.

  pathTo(id) {
    const path = [];
    for (let at = id; at !== null; at = this.moments[at].parent) path.push(at);
    return path.reverse();
  }

  /** The branch whose last moment is the last of the line. */
  get branch() {
    return this.moments[this.line.at(-1)].branch;
  }
}
