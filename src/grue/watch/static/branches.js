// The branches of a session: what was tried from where, and two of them side by side.

import { button, count, make } from "grue/dom";
import { ending } from "grue/transcript";

const MOST_ROWS = 300;

export function letter(number) {
  const last = String.fromCharCode(65 + (number % 26));
  return number < 26 ? last : letter(Math.floor(number / 26) - 1) + last;
}

export class Branches {
  constructor(episode, timeline) {
    this.episode = episode;
    this.timeline = timeline;
    this.other = null;
  }

  begin() {
    this.other = null;
    this.timeline.compared = null;
  }

  update(box) {
    const { episode } = this;
    const current = episode.branch;
    const rows = episode.branches.map((branch, number) => this.row(branch, number, current));
    const names = ["branch", "begins", "steps", "score", "ends", ""];
    const intro = episode.branches.length > 1 ? "" : make("p", { class: "soft" },
      "Go back to any step and give another command there, by typing or clicking: a branch begins, " +
      "and this one stays.");
    box.replaceChildren(intro, make("div", { class: "scroll" }, make("table", { class: "branches" },
      make("thead", null, make("tr", null, names.map((name) => make("th", null, name)))),
      make("tbody", null, rows))), this.comparison(current));
  }

  row(branch, number, current) {
    const { episode } = this;
    const start = episode.moments[branch.start];
    const tip = episode.moments[branch.tip];
    const from = start.parent === null ? "the beginning" :
      `step ${start.depth}: ${start.command} (${start.by === "you" ? "you" : "agent"})`;
    const show = button(letter(number), `Show branch ${letter(number)}`, () => episode.show(tip.id),
      { class: "letter", "aria-pressed": String(number === current) });
    const compare = number === current ? "" : button(
      this.other === number ? "stop comparing" : "compare",
      `Compare branch ${letter(number)} with the one that is shown`,
      () => this.compare(this.other === number ? null : number));
    return make("tr", { class: number === current ? "current" : "" }, make("td", null, show),
      make("td", null, from), make("td", null, tip.depth), make("td", null, tip.score),
      make("td", null, tip.over ? ending(tip) : "open"), make("td", null, compare));
  }

  compare(number) {
    this.other = number;
    this.timeline.compared = number === null ? null : this.episode.branches[number].tip;
    this.episode.changed("branches");
  }

  comparison(current) {
    const { episode } = this;
    if (this.other === null || this.other === current) return "";
    const mine = episode.line;
    const theirs = episode.pathTo(episode.branches[this.other].tip);
    let fork = 0;
    while (fork + 1 < Math.min(mine.length, theirs.length) && mine[fork + 1] === theirs[fork + 1]) {
      fork += 1;
    }
    const last = Math.min(fork + MOST_ROWS, Math.max(mine.length, theirs.length) - 1);
    const rows = [];
    for (let depth = fork + 1; depth <= last; depth += 1) {
      rows.push(make("tr", null, make("td", null, depth),
        ...this.cells(mine[depth]), ...this.cells(theirs[depth])));
    }
    const head = (number) => [make("th", null, `branch ${letter(number)}`),
      make("th", null, "score"), make("th", { title: "the largest Q of a candidate" }, "value")];
    return make("div", { class: "comparison" },
      make("h3", null, `${letter(current)} and ${letter(this.other)} share ${count(fork, "step")}`),
      make("div", { class: "scroll" }, make("table", null,
        make("thead", null, make("tr", null, make("th", null, "step"), ...head(current),
          ...head(this.other))), make("tbody", null, rows))));
  }

  cells(id) {
    if (id === undefined) return [make("td", { colspan: 3, class: "soft" }, "–")];
    const { episode } = this;
    const moment = episode.moments[id];
    const value = episode.briefOf(episode.mind, id)?.value;
    return [
      make("td", { class: moment.changed ? "" : "soft" },
        button(moment.command, "Go there", () => episode.show(id), { class: "plain" })),
      make("td", { class: moment.reward > 0 ? "gain" : "" }, moment.score),
      make("td", { class: "soft" }, value === undefined || value === null ? "" : value.toFixed(2)),
    ];
  }
}
