// Small helpers to make elements and to write numbers.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function get(id) {
  return document.getElementById(id);
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function fixed(number, digits = 2) {
  return number === null || number === undefined ? "–" : number.toFixed(digits);
}

export function short(number) {
  if (number >= 1e6) return `${+(number / 1e6).toFixed(2)}M`;
  if (number >= 1e3) return `${+(number / 1e3).toFixed(1)}k`;
  return `${number}`;
}

export function button(text, title, act, attributes) {
  return make("button", { type: "button", title, onclick: act, ...attributes }, text);
}

/** Calls a function at most once for each frame. */
export function eachFrame(act) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      act();
    });
  };
}
