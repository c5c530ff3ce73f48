// The mind: what the agent thinks of every command, beside the truth where the game knows it.

import { button, count, fixed, get, make } from "grue/dom";

const SHOWN = 30;
const BELIEVES = 0.5;
const FILTERS = {
  all: "all",
  candidates: "candidates",
  true: "admissible",
  wrong: "wrong beliefs",
};

export class MindTable {
  constructor(episode, play) {
    this.episode = episode;
    this.play = play;
    this.filter = "all";
    this.sort = "value";
    this.whole = false;
    this.box = get("mind");
  }

  update() {
    const { episode } = this;
    const { stage, now } = episode;
    const mine = episode.thoughtsOf(episode.mind, now.id);
    const theirs = episode.thoughtsOf(episode.other, now.id);
    if (!episode.mind) {
      this.box.replaceChildren(make("h2", null, "Commands"), ...this.byHand(stage, now));
      return;
    }
    if (now.over) {
      this.box.replaceChildren(make("h2", null, "The agent's mind"),
        make("p", { class: "empty" }, "The episode is over: there is nothing left to decide. " +
          "Go back to any step to see what the agent thought there."));
      return;
    }
    const rows = this.rows(stage, now, mine, theirs);
    const shown = rows.filter((row) => this.fits(row));
    const most = this.whole ? shown.length : SHOWN;
    this.box.replaceChildren(
      make("h2", null, "The agent's mind"),
      this.summary(stage, now, mine, rows),
      theirs ? make("p", { class: "rival" }, "the other chooses ",
        make("strong", { id: "other-choice" }, stage.commands[theirs.action]),
        `, head ${theirs.head + 1}`) : "",
      this.controls(stage),
      this.table(stage, shown.slice(0, most), mine, theirs),
      shown.length > SHOWN ? button(this.whole ? "fewer" : `all ${shown.length}`, "", () => {
        this.whole = !this.whole;
        this.update();
      }, { class: "plain" }) : "",
    );
  }

  rows(stage, now, mine, theirs) {
    const admissible = now.admissible && new Set(now.admissible);
    const candidates = new Set(mine?.candidates ?? []);
    const rows = stage.commands.map((command, number) => {
      const estimate = mine?.estimates?.[number] ?? null;
      const truth = admissible ? admissible.has(number) : null;
      const wrong = estimate !== null && truth !== null && (estimate >= BELIEVES) !== truth;
      return { command, number, value: mine?.values[number] ?? null, estimate, truth, wrong,
        candidate: candidates.has(number), theirs: theirs?.values[number] ?? null,
        theirEstimate: theirs?.estimates?.[number] ?? null };
    });
    const by = {
      value: (row) => [-Number(row.candidate), -(row.value ?? -Infinity)],
      estimate: (row) => [-(row.estimate ?? 0), -(row.value ?? 0)],
      name: (row) => [row.command, 0],
    }[this.sort];
    const chosen = (row) => (row.number === mine?.action ? 0 : 1);
    const keyed = rows.map((row) => [[chosen(row), ...by(row)], row]);
    keyed.sort(([a], [b]) => {
      const at = a.findIndex((part, number) => part !== b[number]);
      return at < 0 ? 0 : a[at] < b[at] ? -1 : 1;
    });
    return keyed.map(([, row]) => row);
  }

  fits(row) {
    return {
      all: true, candidates: row.candidate, true: row.truth === true, wrong: row.wrong,
    }[this.filter];
  }

  summary(stage, now, mine, rows) {
    if (!mine) return make("p", { class: "soft" }, "Thinking …");
    const heads = this.episode.subject.heads ?? 1;
    const chips = Array.from({ length: heads }, (_, head) =>
      make("span", { class: `head h${head % 8} ${head === mine.head ? "on" : ""}` }, head + 1));
    const chosen = stage.commands[mine.action];
    const wrong = rows.filter((row) => row.wrong).length;
    return make("div", { class: "summary" },
      make("p", null, mine.forced ? "forced: " : "chooses ", make("strong", { id: "choice" }, chosen)),
      make("p", null, heads > 1 ? make("span", { class: "chips" }, "head ", chips) : "one head",
        ` for score ${now.score}`),
      make("p", { class: "soft" }, `${count(mine.candidates.length, "candidate")} of ` +
        `${stage.commands.length}`,
        now.admissible ? ` · ${now.admissible.length} admissible` : "",
        mine.estimates && now.admissible ? ` · ${count(wrong, "wrong belief")}` : ""),
      now.admissible ? "" : make("p", { class: "soft" },
        "This game does not tell which commands are admissible."),
      mine.estimates ? "" : make("p", { class: "soft" }, "This agent does not estimate ξ̂."));
  }

  controls(stage) {
    const known = stage.knowsAdmissible;
    const filters = Object.keys(FILTERS).filter((name) => known || !["true", "wrong"].includes(name));
    const pick = (name, value) => (event) => {
      this[name] = event.target.value;
      this.update();
      get(`mind-${name}`).focus();
      return value;
    };
    const option = (now) => ([value, text]) =>
      make("option", { value, selected: value === now }, text);
    return make("div", { class: "controls" },
      make("label", null, "show ", make("select", { id: "mind-filter", onchange: pick("filter") },
        filters.map((name) => option(this.filter)([name, FILTERS[name]])))),
      make("label", null, "by ", make("select", { id: "mind-sort", onchange: pick("sort") },
        [["value", "Q"], ["estimate", "ξ̂"], ["name", "name"]].map(option(this.sort)))));
  }

  table(stage, rows, mine, theirs) {
    const values = rows.flatMap((row) => [row.value, row.theirs]).filter((v) => v !== null);
    const low = Math.min(0, ...values);
    const span = Math.max(0, ...values) - low || 1;
    const other = this.episode.other;
    const judges = mine?.estimates || theirs?.estimates;
    const names = ["command", "Q", ...(judges ? ["ξ̂"] : []),
      ...(stage.knowsAdmissible ? ["true"] : []), ...(other ? ["Q′", ...(judges ? ["ξ̂′"] : [])] : [])];
    const titles = { Q: "the value of the command", "ξ̂": "how likely it is to change the game",
      true: "whether it would change the game", "Q′": "the other agent's value",
      "ξ̂′": "the other agent's estimate" };
    const bar = (value) => {
      const inside = make("i");
      inside.style.width = `${value === null ? 0 : ((value - low) / span) * 100}%`;
      return make("td", { class: "bar" }, inside, make("b", null, fixed(value)));
    };
    const body = rows.map((row) => {
      const kinds = [row.number === mine?.action ? "chosen" : "", row.candidate ? "" : "out",
        row.number === theirs?.action ? "theirs" : "",
        row.wrong ? (row.truth ? "doubts" : "believes") : ""];
      return make("tr", { class: kinds.join(" "), "data-command": row.command },
        make("td", null, this.give(row.command, row)), bar(row.value),
        judges ? make("td", { class: "estimate" }, fixed(row.estimate)) : null,
        stage.knowsAdmissible ? make("td", { class: "truth" }, row.truth ? "✓" : "") : null,
        other ? bar(row.theirs) : null,
        other && judges ? make("td", { class: "estimate second" }, fixed(row.theirEstimate)) : null);
    });
    const head = names.map((name) => make("th", { title: titles[name], scope: "col",
      class: name === "command" ? "" : "number" }, name));
    return make("table", { class: other ? "two" : "" }, make("thead", null, make("tr", null, head)),
      make("tbody", null, body));
  }

  give(command, row) {
    const why = row?.wrong ? (row.truth ? "It would work; the agent doubts it. " :
      "It changes nothing; the agent believes it does. ") : "";
    return button(command, `${why}Play it from here`, () => this.play(command), { class: "give" });
  }

  byHand(stage, now) {
    if (!now.admissible) {
      return [make("p", { class: "soft" }, "This story does not tell which commands are " +
        "admissible. Type any command, or choose one of those that agents know:"),
      make("div", { class: "list" }, stage.commands.map((command) => this.give(command)))];
    }
    const admissible = new Set(now.admissible);
    const sorted = [...stage.commands.keys()].sort((a, b) => admissible.has(b) - admissible.has(a));
    return [make("p", { class: "soft" }, `${count(now.admissible.length, "command")} of ` +
      `${stage.commands.length} would change the game now.`),
    make("div", { class: "list" }, sorted.map((number) => {
      const one = this.give(stage.commands[number]);
      one.classList.toggle("works", admissible.has(number));
      return one;
    }))];
  }
}
