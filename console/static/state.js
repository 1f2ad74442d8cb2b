// What all pages share: the status of the database, the clock, and how times are shown.
import {signal, effect} from './vendor/libraries.js';
import {setReads, get, call, needsToken} from './api.js';
import {duration, moment} from './format.js';
import {route} from './route.js';

export const about = signal({database: '', write: false, now: Date.now()});
export const status = signal(null);
export const fault = signal(null); // why there is no status
export const asOf = signal(0); // when the status was read, ms

// now is the console's clock, by the second.
export const now = signal(Date.now());
let offset = 0;
let still = 0; // where a clock stands that a client moves
export const clock = () => still || Date.now() + offset;

// setting is a choice that the browser keeps; the first is for those who have not chosen.
function setting(name, choices) {
  const kept = localStorage.getItem(name),
    chosen = signal(choices.includes(kept) ? kept : choices[0]);
  effect(() => localStorage.setItem(name, chosen.value));
  return chosen;
}

export const times = setting('lapse-times', ['utc', 'local', 'relative']);
export const theme = setting('lapse-theme', ['auto', 'light', 'dark']);
effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

// show writes an element's moment into it. The elements are rendered once, and keep up with
// the clock and the switch by themselves.
export function show(element) {
  const at = Number(element.dataset.ms);
  const left = Math.floor(at / 1000) - Math.floor(clock() / 1000);
  const text =
    element.dataset.left === undefined
      ? moment(at, times.peek(), clock(), element.dataset.fine !== undefined)
      : left > 0
        ? `in ${duration(left)}`
        : 'expired';
  if (element.textContent !== text) element.textContent = text;
  element.title = moment(at, times.peek() === 'utc' ? 'local' : 'utc', 0, true);
}

effect(() => {
  if (times.value) document.querySelectorAll('time[data-ms]').forEach(show);
});
effect(() => {
  if (now.value)
    document.querySelectorAll(times.value === 'relative' ? 'time[data-ms]' : 'time[data-left]').forEach(show);
});

// title names the page in tabs, history and bookmarks.
effect(() => {
  const [name, ...parts] = route.value.parts;
  const page = name ? name[0].toUpperCase() + name.slice(1) : 'Overview';
  document.title = [...(parts.length > 0 ? parts.toReversed() : [page]), about.value.database, 'lapse']
    .filter(Boolean)
    .join(' · ');
});

const pollEvery = 2000;

async function describe() {
  const began = Date.now();
  const said = await get('console');
  offset = said.now - (began + Date.now()) / 2;
  still = said.test ? said.now : 0;
  about.value = said;
  setReads(said.reads);
}

let described = 0;

// poll reads the status and, if all is true, also what describe reads, such as the clock.
export async function poll(all) {
  if (document.hidden && status.peek() && !all) return;
  try {
    if (all || about.peek().test || Date.now() - described > 60000 || fault.peek()) {
      await describe();
      described = Date.now();
    }
    const s = JSON.parse(await call('status', {fresh: false}));
    status.value = s;
    asOf.value = clock();
    fault.value = null;
  } catch (e) {
    if (!needsToken.peek()) fault.value = e;
  }
}

// work is the change of many documents that is under way, null if none is: {title, state, stop}.
// It goes on when its page is left.
export const work = signal(null);

addEventListener('beforeunload', event => {
  if (work.peek()) event.preventDefault();
});

export function start() {
  const loop = async () => {
    if (!needsToken.peek()) await poll();
    setTimeout(loop, pollEvery);
  };
  setTimeout(loop, pollEvery);
  effect(() => {
    if (!needsToken.value) poll();
  });
  const tick = () => {
    now.value = clock();
    setTimeout(tick, 1000 - (clock() % 1000));
  };
  tick();
}
