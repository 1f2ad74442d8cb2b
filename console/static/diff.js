// The difference between two texts, by lines.
import {html} from './vendor/libraries.js';

const most = 2000; // lines on each side that are compared; more are all different

// diff returns lines as [' ' | '-' | '+', text]. What is equal at both ends costs nothing.
function diff(before, after) {
  const a = before.split('\n'),
    b = after.split('\n');
  let head = 0,
    tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  )
    tail++;
  const x = a.slice(head, a.length - tail),
    y = b.slice(head, b.length - tail);
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
      common[i * width + j] =
        x[i] === y[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const out = [];
  let i = 0,
    j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      out.push([' ', x[i]]);
      i++;
      j++;
    } else if (j === y.length || (i < x.length && common[(i + 1) * width + j] >= common[i * width + j + 1]))
      out.push(['-', x[i++]]);
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

// Diff shows it.
export function Diff({before, after}) {
  const lines = around(diff(before, after));
  if (lines.every(line => line === null)) return html`<p class="faint">The content is the same.</p>`;
  return html`<pre class="json diff" tabindex="0" role="region" aria-label="Changes">${lines
    .slice(0, shownLines)
    .map(line =>
      line === null
        ? html`<span class="faint">…${'\n'}</span>`
        : html`<span class=${line[0] === '+' ? 'added' : line[0] === '-' ? 'removed' : ''}>
          ${line[0]} ${line[1]}${'\n'}
          </span>`,
    )}</pre>`;
}
