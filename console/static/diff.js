// The difference between two texts, by lines, and two changes of one document as one.
import {html} from './vendor/libraries.js';
import {members, object, pretty} from './json.js';

const most = 2000; // lines on each side that are compared; more are all different

// diff returns lines as [' ' | '-' | '+', text]. What is equal at both ends costs nothing.
function diff(before, after) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  const least = Math.min(a.length, b.length);
  let [head, tail] = [0, 0];
  while (head < least && a[head] === b[head]) head++;
  while (tail < least - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const [x, y] = [a, b].map(lines => lines.slice(head, lines.length - tail));
  return [
    ...a.slice(0, head).map(line => [' ', line]),
    ...middle(x, y),
    ...a.slice(a.length - tail).map(line => [' ', line]),
  ];
}

// middle compares by the longest common subsequence.
function middle(x, y) {
  if (x.length * y.length === 0 || x.length > most || y.length > most)
    return [...x.map(l => ['-', l]), ...y.map(l => ['+', l])];
  const width = y.length + 1,
    common = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) {
      const at = i * width + j;
      common[at] = x[i] === y[j] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    const at = i * width + j;
    if (i < x.length && j < y.length && x[i] === y[j]) out.push([' ', x[i++], j++]);
    else if (j === y.length || (i < x.length && common[at + width] >= common[at + 1])) out.push(['-', x[i++]]);
    else out.push(['+', y[j++]]);
  }
  return out;
}

// around keeps the lines that differ and some beside them, and null where some are left out.
function around(lines, beside = 2) {
  const keep = new Set();
  lines.forEach(([kind], i) => {
    if (kind !== ' ') for (let n = i - beside; n <= i + beside; n++) keep.add(n);
  });
  const out = [];
  lines.forEach((line, i) => {
    if (keep.has(i)) out.push(line);
    else if (out.length === 0 || out.at(-1) !== null) out.push(null);
  });
  return out;
}

const shownLines = 1000;

const marks = {'+': 'added', '-': 'removed', ' ': ''};

// Diff shows it.
export function Diff({before, after, label = 'Changes'}) {
  const lines = around(diff(before, after));
  if (lines.every(line => line === null)) return html`<p class="faint">The content is the same.</p>`;
  return html`<pre class="json diff" tabindex="0" role="region" aria-label=${label}>
    ${lines.slice(0, shownLines).map(line =>
      line === null
        ? html`<span class="faint">…${'\n'}</span>`
        : html`<span class=${marks[line[0]]}>${`${line[0]} ${line[1]}\n`}</span>`,
    )}
  </pre>`;
}

const isObject = text => text?.trimStart()[0] === '{';

// same is whether two values differ in white space alone; undefined is no value.
const same = (a, b) => a === b || (a !== undefined && b !== undefined && pretty(a) === pretty(b));

const pointed = name => name.replaceAll('~', '~0').replaceAll('/', '~1');

// merge joins two changes of a value, which are all JSON as text, member by member. Where both
// changed a member, it adds the member to clashes, and picks has by its path whose value counts.
export function merge(base, mine, theirs, clashes, picks = {}, path = '') {
  if (same(mine, theirs) || same(base, theirs)) return mine;
  if (same(base, mine)) return theirs;
  if (!isObject(mine) || !isObject(theirs)) {
    clashes.push({path, mine, theirs});
    return picks[path] === 'theirs' ? theirs : mine;
  }
  const [b, m, t] = [isObject(base) ? base : '{}', mine, theirs].map(text => new Map(members(text)));
  const all = [...new Set([...t.keys(), ...m.keys()])].map(name => [
    name,
    merge(b.get(name), m.get(name), t.get(name), clashes, picks, `${path}/${pointed(name)}`),
  ]);
  return object(all.filter(([, value]) => value !== undefined));
}
