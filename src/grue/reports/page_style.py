"""How the page of a report looks: light or dark as the reader has it, on a desk or a phone."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #22272e; --grey: #5f6873; --line: #dfe4ea; --paper: #ffffff; --soft: #f5f7f9;
  --blue: #1f6fb4; --yes: #1c7a4f; --no: #b3401a; --partly: #8a6508;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #dde2e8; --grey: #98a2ae; --line: #333b45; --paper: #15191e; --soft: #1d232a;
    --blue: #6cb0ea; --yes: #5cc796; --no: #f0855c; --partly: #d9b04a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0.5rem 0; }
h2 {
  font-size: 1.3rem; margin: 2.75rem 0 0.75rem; padding-top: 1.25rem;
  border-top: 1px solid var(--line);
}
h3 { font-size: 1.05rem; margin: 2rem 0 0.25rem; }
p { margin: 0.4rem 0 0.8rem; max-width: 48rem; }
a { color: var(--blue); }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.1rem; margin: 0.75rem 0; }
.grey { color: var(--grey); }
.scroll { overflow-x: auto; margin: 0.5rem 0 1rem; }
table { border-collapse: collapse; font-size: 0.875rem; line-height: 1.4; width: 100%; }
th, td {
  text-align: left; vertical-align: top; padding: 0.35rem 0.75rem 0.35rem 0;
  border-bottom: 1px solid var(--line);
}
th { color: var(--grey); font-weight: 600; white-space: nowrap; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
td.name { white-space: nowrap; }
figure { margin: 0.5rem 0 1.5rem; }
figure .sheet {
  background: #ffffff; border: 1px solid var(--line); border-radius: 6px; padding: 0.5rem;
  overflow-x: auto;
}
figure img { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--grey); font-size: 0.875rem; margin-top: 0.4rem; max-width: 48rem; }
details {
  border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; background: var(--soft);
}
details details { background: var(--paper); }
summary { cursor: pointer; padding: 0.5rem 0.75rem; }
.inside { padding: 0 0.75rem 0.5rem; }
.verdict { font-weight: 600; }
.sofar { font-weight: 400; }
.yes { color: var(--yes); }
.no { color: var(--no); }
.partly { color: var(--partly); }
.open { color: var(--grey); }
code {
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; font-size: 0.8125rem;
  overflow-wrap: anywhere;
}
dl {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 0 1.5rem;
  margin: 0; font-size: 0.8125rem;
}
dl div {
  display: flex; justify-content: space-between; gap: 0.75rem; padding: 0.15rem 0;
  border-bottom: 1px solid var(--line);
}
dt { color: var(--grey); }
dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
dl .own dt, dl .own dd { color: var(--ink); font-weight: 600; }
@media (max-width: 40rem) {
  main { padding: 1rem 0.9rem 3rem; }
  figure img { max-width: 56rem; }
}
@media print {
  details { break-inside: avoid; }
  nav { display: none; }
}
"""
