// Joins the parts of the page.

import { Branches } from "grue/branches";
import { button, count, eachFrame, get, make, short } from "grue/dom";
import { Episode } from "grue/episode";
import { ManyEpisodes } from "grue/many";
import { carried, GameMap, noMap } from "grue/map";
import { MindTable } from "grue/mind";
import { Timeline } from "grue/plots";
import { findSource } from "grue/source";
import { Training } from "grue/training";
import { Transcript } from "grue/transcript";
import { Transport } from "grue/transport";

const source = findSource();
const episode = new Episode(source);
let subjects = [];
let map = null;
let tab = "branches";

/** Does something and tells the user if it is refused. */
async function say(act) {
  get("said").textContent = "";
  try {
    return await act();
  } catch (error) {
    get("said").textContent = error.message;
    return false;
  }
}

const transcript = new Transcript(episode, say);
const mind = new MindTable(episode, (command) => say(() => episode.play(command)));
const timeline = new Timeline(episode, get("plots"));
const transport = new Transport(episode, say, get("transport"));
const branches = new Branches(episode, timeline);
const training = new Training(episode, () => subjects);
const many = new ManyEpisodes(episode, say);
const TABS = {
  branches: ["Branches", branches],
  training: ["Over training", training],
  many: ["Many episodes", many],
};

// What is shown of a moment

function showFacts() {
  const { stage, now } = episode;
  const most = stage.maxScore === null ? "" : ` / ${stage.maxScore}`;
  const limit = stage.limit === null ? "" : ` / ${stage.limit}`;
  const fact = (name, text, id) => make("span", { class: "fact" }, make("b", { id }, text), name);
  get("facts").replaceChildren(
    stage.scoreUnknown ? fact("score unknown", "–", "score") :
      fact("score", `${now.score}${most}`, "score"),
    fact("steps", `${now.depth}${limit}`, "steps"),
    stage.subtasks.length ? fact("subtasks", `${now.subtasks.length} / ${stage.subtasks.length}`,
      "subtasks-done") : "",
    now.over ? make("span", { class: `over ${now.over}`, id: "over" },
      { won: "won", lost: "lost", limit: "out of steps" }[now.over]) : "");
}

function showWorld() {
  const { stage, now } = episode;
  if (!map) {
    get("map").replaceChildren(noMap(stage));
  } else {
    map.show(now.world, trail());
    if (map.svg.parentElement !== get("map")) get("map").replaceChildren(map.svg);
  }
  const done = new Set(now.subtasks);
  const held = map ? carried(stage.map, now.world) : null;
  const tasks = stage.subtasks.map((name, number) => make("li", { class: done.has(number) ? "done" : "" },
    name));
  get("belongings").replaceChildren(
    held ? make("div", { id: "inventory" }, make("h2", null, "Carried"), make("p", null,
      held.length ? held.join(", ") : "nothing")) : "",
    tasks.length ? make("div", null, make("h2", null, "Subtasks"), make("ul", { id: "tasks" }, tasks)) :
      "");
}

function trail() {
  const rooms = [];
  const first = Math.max(0, episode.cursor - 200);
  for (let at = first; at <= episode.cursor; at += 1) {
    rooms.push(episode.moments[episode.line[at]].world.room);
  }
  return rooms;
}

function showTab() {
  get("tabs").replaceChildren(...Object.entries(TABS).map(([name, [text]]) =>
    button(text, "", () => {
      tab = name;
      showTab();
      get(`tab-${name}`).focus();
    }, { role: "tab", id: `tab-${name}`, "aria-selected": String(name === tab) })));
  TABS[tab][1].update(get("panel"));
}

const show = eachFrame(() => {
  if (!episode.now) return;
  // The timeline and the transcript ask where things lie: before and after all changes.
  timeline.update();
  showFacts();
  showWorld();
  mind.update();
  transport.update();
  if (tab === "branches") branches.update(get("panel"));
  transcript.update();
});

const showThoughts = eachFrame(() => {
  if (!episode.now) return;
  timeline.update();
  mind.update();
  if (tab === "branches") branches.update(get("panel"));
});

episode.addEventListener("change", ({ detail }) => {
  if (detail === "thoughts") return showThoughts();
  if (detail === "busy") return document.body.classList.toggle("busy", episode.busy);
  if (detail === "refused") return get("said").replaceChildren(episode.refusal);
  if (detail === "along") return get("plots").setAttribute("aria-busy", String(episode.along));
  if (detail === "episode") beginPage();
  return show();
});

function beginPage() {
  const { stage } = episode;
  map = stage.map ? new GameMap(stage.map, episode.moments[0].world) : null;
  transcript.begin();
  branches.begin();
  many.begin();
  get("prompt").hidden = !source.live;
  showSetup();
  showTab();
}

// The head of the page

function describe(subject) {
  if (subject.kind === "game") return "played by hand";
  if (subject.problem) return "";
  const gate = subject.gate === "none" ? "" : ` + ${subject.gate}`;
  const trained = subject.trained ?? subject.checkpoints?.at(-1) ?? 0;
  return `${subject.agent}${gate} on ${subject.game.split("/").at(-1)}, ${short(trained)} steps trained`;
}

function showSetup() {
  const { subject, chance } = episode;
  const choose = make("select", { id: "subject", "aria-label": "What to watch",
    onchange: (event) => say(() => choosing(subjects[Number(event.target.value)])) },
  subjects.map((each) => make("option", { value: String(each.number),
    selected: each.number === subject?.number },
  `${each.name}${each.problem && !each.waiting ? " (damaged)" : ""}`)));
  const field = (id, label, value, most, step) => make("label", null, `${label} `,
    make("input", { type: "number", id, min: 0, max: most, step, value: String(value) }));
  const begin = () => say(() => episode.begin(subject, {
    seed: chance.seed, episode: Number(get("episode").value),
    epsilon: Number(get("epsilon")?.value ?? 0),
  }));
  const fields = !subject || !source.live ? [] : [
    field("episode", subject.kind === "run" ? "episode" : "seed", chance.episode, 2 ** 31 - 2, 1),
    subject.kind === "run" ? field("epsilon", "ε", chance.epsilon, 1, 0.05) : "",
    button("New episode", "Begin again with this episode and ε", begin, { id: "new-episode" }),
  ];
  get("setup").replaceChildren(source.live ? choose : make("strong", null, subject.name),
    make("span", { class: "soft", id: "described" }, subject ? describe(subject) : ""), ...fields);
}

function showTools() {
  const theme = button("◐", "Light or dark", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    show();
    showTab();
  }, { "aria-label": "Light or dark", id: "theme" });
  get("tools").replaceChildren(source.live ? button("Export", "Save this line as one HTML file",
    () => say(exportLine), { id: "export" }) : "", theme);
}

async function exportLine() {
  const page = await episode.ask("export", { last: episode.line.at(-1),
    ...episode.asMind(episode.mind) });
  const link = make("a", { download: `${episode.subject.name}-episode${episode.chance.episode}.html`,
    href: URL.createObjectURL(new Blob([page], { type: "text/html" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function choosing(subject) {
  if (subject.problem && !subject.waiting) {
    showSetup();
    throw new Error(subject.problem);
  }
  return episode.begin(subject);
}

// A run that has just been started may not be there yet, or have no checkpoint

async function refreshSubjects() {
  subjects = (await source.ask("about", {})).subjects;
  return subjects;
}

async function firstSubject() {
  for (;;) {
    await refreshSubjects();
    const ready = subjects.find((subject) => !subject.problem);
    if (ready) return ready;
    showSetup();
    const waiting = subjects.find((subject) => subject.waiting);
    const why = (waiting ?? subjects[0]).problem;
    get("transcript").replaceChildren(make("p", { class: "empty" },
      waiting ? `Waiting: ${why}.` : why));
    if (!waiting) return null;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function followRuns() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 3000));
    if (document.visibilityState !== "visible") continue;
    await refreshSubjects().catch(() => {});
    const same = subjects.find((each) => each.number === episode.subject?.number);
    if (!same?.checkpoints?.length) continue;
    episode.subject = same;
    get("described").textContent = describe(same);
    const isNew = same.checkpoints.at(-1) !== episode.learnedAt;
    episode.learnedAt = same.checkpoints.at(-1);
    if (!episode.mind) {
      await episode.setMind({ run: same.number, step: null });
      showSetup();
      showTab();
      show();
    } else if (isNew) {
      await episode.thinkAgain();
    }
  }
}

async function start() {
  source.onTrouble = (why) => {
    get("trouble").textContent = why;
    get("trouble").hidden = !why;
  };
  showTools();
  const first = await firstSubject();
  if (!first) return;
  await say(() => episode.begin(first));
  if (!source.live) episode.goTo(0);
  window.addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  if (source.live) {
    training.follow();
    if (subjects.some((each) => each.kind === "run")) followRuns();
  }
  document.body.dataset.ready = count(subjects.length, "subject");
}

start();
