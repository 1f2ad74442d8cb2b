// Small parts that several pages use.
import {html, signal, useLayoutEffect, useRef, useState, useEffect} from './vendor/libraries.js';
import {call} from './api.js';
import {show, times} from './state.js';
import {number, units} from './format.js';

// Time is a moment in ms, by the switch in the header.
export function Time({ms, fine}) {
  const element = useRef();
  useLayoutEffect(() => show(element.current), [ms, times.value]);
  return html`<time ref=${element} data-ms=${ms} data-fine=${fine ? '' : undefined}
    dateTime=${new Date(ms).toISOString()}>
    </time>`;
}

// Left is how long it is until a moment in ms.
export function Left({ms}) {
  const element = useRef();
  useLayoutEffect(() => show(element.current), [ms]);
  return html`<time ref=${element} class="left" data-ms=${ms} data-left="" dateTime=${new Date(ms).toISOString()}>
    </time>`;
}

// instant is a moment as it is typed, in ms: unix seconds or a time, which is in the zone that
// the page shows if it has none; undefined for anything else, such as a length of time.
export function instant(text) {
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const [whole, day, time, zone] = text.match(typed) ?? [];
  const own = times.peek() === 'local' ? '' : 'Z';
  const at = whole && Date.parse(`${day}T${time ?? '00:00'}${zone ?? own}`);
  return isNaN(at) ? undefined : at;
}

const typed = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:?\d\d)?)?$/i;

// iso is a moment as the API and addresses have it: a time in UTC, or what was typed otherwise.
export function iso(text) {
  const at = instant(text.trim());
  return at === undefined || /^\d+$/.test(text.trim()) ? text.trim() : new Date(at).toISOString().replace('.000Z', 'Z');
}

// When is a moment or a length of time as text, with a picker, which shows times as the page does.
export function When({id, label, value, placeholder, onChange, onCommit, ...more}) {
  const picker = useRef();
  const at = instant(value.trim());
  const pick = text => {
    const picked = iso(text);
    onChange(picked);
    onCommit?.(picked);
  };
  return html`<div class="field half"><label for=${id}>${label}</label>${' '}
    <span class="when">
      <input id=${id} spellcheck=${false} autocomplete="off" placeholder=${placeholder} value=${value} ...${more}
        onInput=${e => onChange(e.target.value)} onChange=${e => onCommit?.(iso(e.target.value))} />
      <button type="button" aria-label="${label}: pick a time" title="Pick a time"
        onClick=${() => picker.current.showPicker()}>…</button>
      <input ref=${picker} type="datetime-local" step="1" class="hidden" tabindex="-1" aria-hidden="true"
        onChange=${e => e.target.value && pick(e.target.value)} /></span>
    ${at !== undefined && html`<span><${Time} ms=${at} /></span>`}</div>`;
}

// Fault is an error where it belongs. It is announced to screen readers.
export function Fault({error, id}) {
  return html`<p class="fault" role="alert" id=${id} hidden=${!error}>${error && (error.message ?? String(error))}</p>`;
}

// Badge is a short state: good, bad or neither.
export const Badge = ({kind = '', title, children}) => html`
  <span class="badge ${kind}" title=${title}>${children}</span>`;

// Table scrolls by itself where it is wider than the screen. head has a name for each column,
// its class, how it is sorted ({now, onClick}), and what stands before the name.
export function Table({label, head, children}) {
  const column = ([name, kind, sort, before]) => html`<th scope="col" class=${kind} aria-sort=${sort?.now}>
    ${before}${sort ? html`<button type="button" class="sort" onClick=${sort.onClick}>${name}</button>` : name}</th>`;
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><table>
    <thead><tr>${head.map(column)}</tr></thead>
    <tbody>${children}</tbody>
  </table></div>`;
}

// Seconds is a number with a unit, whose value is in seconds, or null. The field keeps what
// is typed: a render between "1." and "5", of which the first is no number, would undo it.
export function Seconds({value, unit, onChange, label, id}) {
  const size = units.find(([name]) => name === unit)[1];
  const field = useRef();
  const typed = () => (field.current.value === '' ? null : Number(field.current.value));
  useLayoutEffect(() => {
    if (typed() !== value) field.current.value = value ?? ''; // changed by others
  }, [value]);
  return html`<span class="seconds">
    <input ref=${field} id=${id} type="number" min="0" step="any" inputmode="decimal" aria-label=${label}
      onInput=${() => onChange(typed(), unit)} />
    <select aria-label="${label}: unit" value=${unit} onChange=${e => onChange(value, e.target.value)}>
      ${units.toReversed().map(([name]) => html`<option value=${name}>${name}</option>`)}
    </select>
    ${size > 1 && value ? html`<span class="faint">${number(secondsOf(value, unit))} s</span>` : ''}
  </span>`;
}

// inUnits splits seconds into a number and the largest unit that fits.
export function inUnits(seconds) {
  const [unit, size] = units.find(([, size]) => seconds % size === 0);
  return {n: seconds / size, unit};
}

// secondsOf is the reverse, NaN for no number.
export const secondsOf = (n, unit) =>
  n === null ? NaN : Number((n * units.find(([name]) => name === unit)[1]).toFixed(3));

// Confirm is a button that asks once more.
export function Confirm({children, ask, onYes, disabled}) {
  const [asked, setAsked] = useState(false);
  const again = useRef(false); // the question was answered with no
  const answer = yes => {
    again.current = !yes;
    setAsked(false);
    if (yes) {
      document.querySelector('main').focus();
      onYes();
    }
  };
  if (!asked) {
    return html`<button type="button" class="danger" disabled=${disabled} ref=${e => again.current && focus(e)}
      onClick=${() => setAsked(true)}>${children}</button>`;
  }
  return html`<span class="confirm" role="group" aria-label=${ask}>${ask}${' '}
    <button type="button" class="danger" ref=${focus} onClick=${() => answer(true)}>Yes</button>${' '}
    <button type="button" onClick=${() => answer(false)}>No</button></span>`;
}

const focus = element => element?.focus();

// collections are the names of all collections, as far as one page of the list has them.
export const collections = signal(null);

export async function listCollections() {
  const all = [];
  let cursor;
  do {
    const page = JSON.parse(await call('collection.list', {body: cursor ? {cursor} : ''}));
    all.push(...page.collections);
    cursor = page.cursor;
  } while (cursor && all.length < 10000);
  collections.value = all;
  return all;
}

// Picker chooses a collection; bare without a label beside it.
export function Picker({value, bare, onPick}) {
  const [error, setError] = useState(null);
  useEffect(() => {
    listCollections().catch(setError);
  }, []);
  const all = collections.value;
  if (!all) return html`<${Fault} error=${error} />`;
  if (all.length === 0) return html`<p>There is no collection yet. <a href="#/collections">Create one</a>.</p>`;
  const missing = value && !all.some(c => c.id === value);
  const select = html`<select aria-label="Collection" value=${value} onChange=${e => onPick(e.target.value)}>
    ${!value && html`<option value="">Choose one …</option>`}
    ${missing && html`<option value=${value}>${value}</option>`}
    ${all.map(c => html`<option value=${c.id}>${c.id}</option>`)}
  </select>`;
  return html`${bare ? select : html`<label class="field">Collection ${select}</label>`}<${Fault} error=${error} />`;
}

// JSONText shows JSON that may be large: the beginning, and all of it on demand.
const shownAtOnce = 100000;

export function JSONText({text, label}) {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > shownAtOnce;
  return html`<pre class="json" tabindex="0" role="region" aria-label=${label}>
    ${cut ? text.slice(0, shownAtOnce) : text}
    </pre>
    ${cut &&
      html`<button type="button"
      onClick=${() => setAll(true)}>Show all ${text.length.toLocaleString('en-US')} characters</button>`}`;
}

// Restore is a button that brings back a version, or the last one.
export function Restore({name, id, version, onChanged, children}) {
  const [error, setError] = useState(null);
  const restore = async () => {
    try {
      await call('document.restore', {collection: name, id, body: version ? {version: String(version)} : ''});
      onChanged();
    } catch (fault) {
      setError(fault);
    }
  };
  return html`<button type="button" onClick=${restore}>${children}</button><${Fault} error=${error} />`;
}

const loaded = new Map(); // modules
const retryAfter = 2000; // ms

// lazy is a component whose module is loaded when it is first shown.
export function lazy(load, name) {
  return function Lazy(props) {
    const [module, setModule] = useState(loaded.get(load));
    const [error, setError] = useState(null);
    useEffect(() => {
      let timer = 0;
      const ask = () =>
        load().then(
          m => {
            loaded.set(load, m);
            setModule(m);
          },
          () => {
            setError('A part of the page cannot be loaded: is lapse running? It is tried again.');
            timer = setTimeout(ask, retryAfter);
          },
        );
      if (!module) ask();
      return () => clearTimeout(timer);
    }, []);
    if (module) return html`<${module[name]} ...${props} />`;
    return error ? html`<${Fault} error=${error} />` : html`<p class="loading">Loading…</p>`;
  };
}
