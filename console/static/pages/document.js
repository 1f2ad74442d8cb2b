// One document: its content, when it expires, and its history across lives.
import {html, useEffect, useState} from '../html.js';
import {call} from '../api.js';
import {about, now, status} from '../state.js';
import {duration, number} from '../format.js';
import {content, member, members, elements, pretty} from '../json.js';
import {around, diff} from '../diff.js';
import {Badge, Confirm, Fault, JSONText, link, Seconds, sizeOf, Time} from '../parts.js';

const maxTTL = 2147483647;
const historyLimit = 100;

// deadline is when a document expires, in seconds, and which rule says so: the table of
// docs/ttl.md.
export function deadline(text, defaultTtl) {
  const own = member(text, 'ttl'), ts = Number(member(text, '_ts'));
  if (defaultTtl === null || defaultTtl === undefined) return {rule: 'TTL of the collection is off'};
  const n = own === undefined ? NaN : Number(own);
  if (own?.[0] !== '"' && Number.isInteger(n) && own !== 'null') {
    if (n === -1) return {rule: 'ttl -1 of the document'};
    if (n >= 1 && n <= maxTTL) return {at: ts + n, rule: `ttl of the document, ${duration(n)}`};
  }
  if (defaultTtl === -1) return {rule: 'the collection has no default'};
  return {at: ts + defaultTtl, rule: `default of the collection, ${duration(defaultTtl)}`};
}

function Countdown({due}) {
  if (!due.at) return html`<${Badge}>never expires<//>${' '}<span class="faint">${due.rule}</span>`;
  const left = due.at - Math.floor(now.value / 1000);
  return html`<${Badge} kind=${left > 0 ? 'on' : 'bad'}><span class="countdown">${left > 0 ? `expires in ${duration(left)}` : 'expired'}</span><//>${' '}<span class="faint">at <${Time} ms=${due.at * 1000} />, by ${due.rule}</span>`;
}

export function Document({name, id}) {
  const [text, setText] = useState(null); // null until it is there, '' if it does not live
  const [collection, setCollection] = useState(null);
  const [history, setHistory] = useState(null);
  const [error, setError] = useState(null);
  const [changes, setChanges] = useState(0);
  const load = async signal => {
    try {
      setCollection(JSON.parse(await call('collection.get', {collection: name, signal})));
      const [got, past] = await Promise.allSettled([call('document.get', {collection: name, id, signal}), call('history', {collection: name, id, body: {limit: historyLimit}, signal})]);
      if (got.status === 'rejected' && got.reason.error !== 'document_not_found') throw got.reason;
      setText(got.status === 'fulfilled' ? got.value : '');
      setHistory(past.status === 'fulfilled' ? elements(member(past.value, 'events')) : []);
      setError(got.status === 'rejected' && past.status === 'rejected' ? got.reason : null);
    } catch (fault) {
      if (!signal?.aborted) setError(fault);
    }
  };
  const due = text && collection ? deadline(text, collection.defaultTtl) : null;
  const passed = due?.at !== undefined && due.at <= Math.floor(now.value / 1000);
  const logged = history?.[0] && member(history[0], 'type') === '"DocumentExpired"';
  // Once it is due, the page waits for the event that says so.
  useEffect(() => {
    const abort = new AbortController();
    const wait = passed && !logged ? 500 : 0;
    const timer = setTimeout(() => load(abort.signal), wait);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [changes, passed, passed && !logged ? status.value?.seq : 0]);
  return html`<nav class="crumbs" aria-label="Path"><a href=${link('documents', name)}>${name}</a></nav>
    <h1><bdi>${id}</bdi></h1>
    <${Fault} error=${error} />
    ${text === '' && !error && html`<p class="state"><${Badge} kind="bad">${logged || passed ? 'expired' : 'deleted'}<//>${' '}Its last content is in the history below.</p>`}
    ${due && html`<p class="state"><${Countdown} due=${due} /></p>`}
    ${text && html`<${Live} key=${member(text, '_etag')} name=${name} id=${id} text=${text} expired=${passed} onChanged=${() => setChanges(changes + 1)} />`}
    ${history?.length > 0 && html`<${History} events=${history} />`}`;
}

function Live({name, id, text, expired, onChanged}) {
  const etag = JSON.parse(member(text, '_etag'));
  const [draft, setDraft] = useState(null);
  const [n, setN] = useState(null);
  const [unit, setUnit] = useState('hours');
  const [error, setError] = useState(null);
  const change = async (op, body) => {
    try {
      await call(op, {collection: name, id, body, etag});
      setError(null);
      onChanged();
    } catch (fault) {
      setError(fault.code === 412 ? new Error('Somebody was faster: the document has changed since you looked at it. Load it again, and repeat your change.') : fault);
    }
  };
  const shown = pretty(content(text));
  const write = about.value.write && !expired;
  return html`
    <p class="faint">version ${etag}, modified <${Time} ms=${Number(member(text, '_ts')) * 1000} />, ${number(new Blob([text]).size)} bytes · <a href="#/feed?${new URLSearchParams({collection: name, id})}">Feed</a></p>
    ${draft === null ? html`<${JSONText} text=${shown} label="Content" />` : html`
      <label class="field">Content <textarea class="json" rows=${Math.min(30, Math.max(6, draft.split('\n').length))} spellcheck=${false} value=${draft} onInput=${e => setDraft(e.target.value)}></textarea></label>`}
    <${Fault} error=${error} />
    ${write && html`<div class="row actions">
      ${draft === null
        ? html`<button type="button" onClick=${() => setDraft(shown)}>Edit</button>`
        : html`<button type="button" class="primary" onClick=${() => change('document.replace', draft)}>Save</button><button type="button" onClick=${() => setDraft(null)}>Cancel</button>`}
      <button type="button" onClick=${onChanged}>Load again</button>
      <${Confirm} ask="Delete this document?" onYes=${() => change('document.delete', '')}>Delete<//>
    </div>
    <fieldset class="row actions"><legend>Time to live</legend>
      <${Seconds} label="Time to live" value=${n} unit=${unit} onChange=${(value, u) => { setN(value); setUnit(u); }} />
      <button type="button" disabled=${!n} onClick=${() => change('document.patch', {ttl: n * sizeOf(unit)})}>Set</button>
      <button type="button" onClick=${() => change('document.patch', {ttl: -1})}>Never</button>
      <button type="button" onClick=${() => change('document.patch', {ttl: null})}>Inherit</button>
    </fieldset>`}`;
}

const words = {DocumentCreated: 'Created', DocumentReplaced: 'Replaced', DocumentDeleted: 'Deleted', DocumentExpired: 'Expired', MutationRejected: 'Rejected'};
const ends = ['DocumentDeleted', 'DocumentExpired'];

// History is a timeline, newest first. Each version is compared with the one before it.
function History({events}) {
  const all = events.map(text => {
    const e = Object.fromEntries(members(text));
    for (const name of Object.keys(e)) if (name !== 'body') e[name] = JSON.parse(e[name]);
    return e;
  });
  return html`<h2>History</h2><ol class="timeline">${all.map((e, i) => {
    const older = all.slice(i + 1).find(o => o.type.startsWith('Document') && o.body);
    return html`<li key=${e.seq} class=${ends.includes(e.type) ? 'end' : ''}>
      <${Event} e=${e} before=${e.type === 'DocumentReplaced' ? older : undefined} open=${i === 0 && ends.includes(e.type)} />
      ${e.type === 'DocumentCreated' && i < all.length - 1 && html`<p class="life">A new life begins here.</p>`}</li>`;
  })}</ol>${all.length === historyLimit && html`<p class="faint">Only the newest ${number(historyLimit)} events are shown.</p>`}`;
}

function Event({e, before, open: initially}) {
  const [open, setOpen] = useState(initially);
  const note = e.type === 'DocumentExpired' ? html`, by the ${e.rule}’s ttl of ${duration(e.ttl)}` : e.type === 'MutationRejected' ? html`: ${JSON.parse(e.body).message}` : '';
  return html`<p><strong>${words[e.type] ?? e.type}</strong>${note} <span class="faint"><${Time} ms=${Date.parse(e.time)} fine />, sequence ${number(e.seq)}</span></p>
    ${e.body && e.type !== 'MutationRejected' && html`<details open=${open} onToggle=${event => setOpen(event.target.open)}>
      <summary>${before ? 'Changes' : ends.includes(e.type) ? 'Last content' : 'Content'}</summary>
      ${open && (before ? html`<${Diff} before=${before.body} after=${e.body} />` : html`<${JSONText} text=${pretty(content(e.body))} label="Content at sequence ${e.seq}" />`)}
    </details>`}`;
}

const shownLines = 1000;

function Diff({before, after}) {
  const lines = around(diff(pretty(content(before)), pretty(content(after))));
  if (lines.every(line => line === null)) return html`<p class="faint">The content is the same.</p>`;
  return html`<pre class="json diff" tabindex="0" role="region" aria-label="Changes">${lines.slice(0, shownLines).map(line =>
    line === null ? html`<span class="faint">…${'\n'}</span>` : html`<span class=${line[0] === '+' ? 'added' : line[0] === '-' ? 'removed' : ''}>${line[0]} ${line[1]}${'\n'}</span>`)}</pre>`;
}
