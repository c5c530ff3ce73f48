// The transcript, and the prompt with history and undo.

import { get, make } from "grue/dom";

const WINDOW = 40; // Entries beside the current one that are on the page at first.
const WHO = { agent: "agent", forced: "forced look", you: "you" };

function isOwn(moment) {
  return moment.by === "you";
}

export class Transcript {
  constructor(episode, say) {
    this.episode = episode;
    this.say = say;
    this.box = get("transcript");
    this.input = get("command");
    this.history = [];
    this.recalled = 0;
    this.shown = { line: [], first: 0, last: 0 };
    get("prompt").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    get("undo").addEventListener("click", () => this.episode.undo());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("scroll", () => this.grow());
    this.box.addEventListener("click", (event) => this.click(event));
  }

  // The prompt

  async submit() {
    const text = this.input.value.trim();
    if (!text) return;
    this.history.push(text);
    this.recalled = this.history.length;
    this.input.value = "";
    if (text.toLowerCase() === "undo") this.episode.undo();
    else if (text.toLowerCase() === "restart") this.episode.goTo(0);
    else if (!(await this.say(() => this.episode.play(text)))) this.input.value = text;
  }

  key(event) {
    if (event.key === "z" && (event.ctrlKey || event.metaKey) && !this.input.value) {
      event.preventDefault();
      this.episode.undo();
    }
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") this.input.blur();
    if (!step || !this.history.length) return;
    event.preventDefault();
    this.recalled = Math.max(0, Math.min(this.recalled + step, this.history.length));
    this.input.value = this.history[this.recalled] ?? "";
  }

  begin() {
    const { commands, free } = this.episode.stage;
    get("commands").replaceChildren(...commands.map((command) => make("option", { value: command })));
    this.input.placeholder = free ? "type a command" : `one of ${commands.length} commands`;
    this.shown = { line: [], first: 0, last: 0 };
    this.box.replaceChildren();
  }

  // The lines

  update() {
    const { episode, shown } = this;
    const { line, cursor } = episode;
    let same = 0;
    while (same < line.length && line[same] === shown.line[same]) same += 1;
    const isNear = cursor >= shown.first && cursor < shown.last;
    if (!isNear || same < shown.first) this.fill(cursor - WINDOW, cursor + WINDOW);
    else if (same < Math.max(shown.last, line.length)) this.replaceFrom(same);
    this.shown.line = line.slice();
    this.mark();
  }

  fill(first, last) {
    const { line } = this.episode;
    this.shown.first = Math.max(0, first);
    this.shown.last = Math.min(line.length, last + 1);
    const ids = line.slice(this.shown.first, this.shown.last);
    this.box.replaceChildren(...ids.map((id) => this.entry(id)));
  }

  replaceFrom(place) {
    const { line, cursor } = this.episode;
    const { shown, box } = this;
    while (box.children.length > Math.max(0, place - shown.first)) box.lastChild.remove();
    shown.last = Math.min(line.length, Math.max(cursor + WINDOW, place) + 1);
    box.append(...line.slice(Math.max(place, shown.first), shown.last).map((id) => this.entry(id)));
  }

  /** More entries when the reader comes near an end of those that are there. */
  grow() {
    const { box, shown } = this;
    const { line } = this.episode;
    if (box.scrollTop < 200 && shown.first > 0) {
      const first = Math.max(0, shown.first - WINDOW);
      const before = box.scrollHeight;
      box.prepend(...line.slice(first, shown.first).map((id) => this.entry(id)));
      shown.first = first;
      box.scrollTop += box.scrollHeight - before;
    }
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (left < 200 && shown.last < line.length) {
      const last = Math.min(line.length, shown.last + WINDOW);
      box.append(...line.slice(shown.last, last).map((id) => this.entry(id)));
      shown.last = last;
    }
  }

  entry(id) {
    const moment = this.episode.moments[id];
    const before = this.episode.moments[moment.parent];
    const entry = make("article", { "data-id": id, class: `entry ${moment.changed ? "" : "idle"}` });
    if (moment.command) {
      const given = make("button", { type: "button", class: `given ${moment.by}`,
        title: `Step ${moment.depth}, by ${WHO[moment.by]}: go there` }, moment.command);
      const forks = this.episode.children[moment.parent].length > 1;
      entry.append(make("h3", null, make("span", { class: "step" }, moment.depth), given,
        isOwn(moment) && this.episode.mind ? make("span", { class: "tag" }, "you") : null,
        moment.by === "forced" ? make("span", { class: "tag soft" }, "forced") : null,
        forks ? make("span", { class: "tag fork", title: "Another command was given here, too" }, "fork") : null));
    }
    entry.append(make("p", { class: "text" }, ...prose(moment.text ?? "")));
    const done = moment.subtasks.filter((n) => !before?.subtasks.includes(n));
    const names = done.map((n) => this.episode.stage.subtasks[n]).filter(Boolean);
    if (moment.reward || (before && names.length)) {
      const sign = moment.reward > 0 ? "+" : "";
      entry.append(make("p", { class: moment.reward < 0 ? "loss" : "gain" },
        [`${sign}${moment.reward}`, ...names].join(" · ")));
    }
    if (moment.over) entry.append(make("p", { class: `end ${moment.over}` }, ending(moment)));
    return entry;
  }

  mark() {
    const { box, shown } = this;
    const place = this.episode.cursor - shown.first;
    let number = 0;
    for (let entry = box.firstChild; entry; entry = entry.nextSibling, number += 1) {
      entry.classList.toggle("now", number === place);
      entry.classList.toggle("later", number > place);
    }
    const now = box.children[place];
    if (!now) return;
    // scrollIntoView would also scroll the window.
    const top = now.offsetTop;
    const below = top + now.offsetHeight - box.clientHeight;
    if (top < box.scrollTop || below + 12 > box.scrollTop) {
      const wanted = Math.min(top, Math.max(below + 12, top - box.clientHeight * 0.6));
      // An entry begins at the upper edge, so that no line is cut there.
      let first = now;
      while (first.previousSibling && first.previousSibling.offsetTop >= wanted) {
        first = first.previousSibling;
      }
      box.scrollTop = first.offsetTop;
    }
  }

  click(event) {
    const given = event.target.closest(".given");
    if (!given) return;
    const id = Number(given.closest(".entry").dataset.id);
    this.episode.goTo(this.episode.line.indexOf(id));
  }
}

/** The text with the names of rooms, which TextWorld prints as -= Kitchen =-, as headings. */
function prose(text) {
  return text.split(/-=\s*(.+?)\s*=-\s*/).map((part, number) =>
    (number % 2 ? make("strong", { class: "place" }, part) : part.trim()));
}

export function ending(moment) {
  const steps = `${moment.depth} step${moment.depth === 1 ? "" : "s"}`;
  return {
    won: `Won in ${steps}.`,
    lost: `Lost after ${steps}.`,
    limit: `The limit of ${steps} is reached.`,
  }[moment.over];
}
