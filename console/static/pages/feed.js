// Feed: events as they come. Rows are made once and never drawn again.
import {html, render, useEffect, useLayoutEffect, useRef, useState} from '../vendor/libraries.js';
import {eventAt, follow} from '../events.js';
import {about, clock, show, status} from '../state.js';
import {count, number, duration} from '../format.js';
import {content, member, members, pretty} from '../json.js';
import {Diff} from '../diff.js';
import {changeAll, Refused, useWork} from '../many.js';
import {at, go, link} from '../route.js';
import {collections, Fault, instant, iso, JSONText, listCollections, Restore, When} from '../parts.js';

// types are those of events, by what the page calls them.
const types = {
  DocumentCreated: 'Created',
  DocumentReplaced: 'Replaced',
  DocumentTouched: 'Touched',
  DocumentDeleted: 'Deleted',
  DocumentExpiring: 'Warned',
  DocumentExpired: 'Expired',
  DocumentHeld: 'Held',
  DocumentReleased: 'Released',
  CollectionCreated: 'Collection created',
  CollectionReplaced: 'Collection changed',
  CollectionDeleted: 'Collection deleted',
  MutationRejected: 'Rejected',
};
const kinds = {DocumentExpired: 'bad', DocumentDeleted: 'bad', MutationRejected: 'bad', DocumentCreated: 'good',
  DocumentHeld: 'held', DocumentExpiring: 'held'};
const mostRows = 1000;
const mostBody = 400; // bytes of a body that a row shows
const lasts = ['DocumentExpired', 'DocumentDeleted']; // may be restored
const chunk = 50; // rows of a body of the table: the browser lays out and draws those in sight
const drawEvery = 300; // ms
const applyAfter = 300; // ms

// formOf is the form that an address describes, and addressOf the reverse: from is a
// sequence, or a time, or empty for now.
function formOf(query) {
  const from = query.get('from') ?? '';
  return {
    type: query.getAll('type'),
    collection: query.get('collection') ?? '',
    id: query.get('id') ?? '',
    kind: from === '' ? 'now' : /^\d+$/.test(from) ? 'sequence' : 'time',
    from,
    until: query.get('until') ?? '',
  };
}

function addressOf(form) {
  const from = form.kind === 'now' ? '' : form.kind === 'time' ? moment(form.from) : form.from.trim();
  return at(
    ['feed'],
    [
      ...form.type.map(type => ['type', type]),
      ['collection', form.collection],
      ['id', form.id],
      ['from', from],
      ['until', form.kind === 'time' && moment(form.until)],
    ],
  );
}

const sizes = {d: 86400000, h: 3600000, m: 60000, s: 1000};

// moment is a time as the console takes it; a length of time is one ago.
function moment(text) {
  const parts = [...text.trim().matchAll(/(\d+)([dhms])/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join('') !== text.trim()) return iso(text);
  return new Date(clock() - parts.reduce((sum, [, n, unit]) => sum + n * sizes[unit], 0)).toISOString();
}

// feedOf is the query of the console's feed for an address.
function feedOf(query, bodies) {
  const wanted = new URLSearchParams(query);
  wanted.delete('until');
  if (/\D/.test(query.get('from') ?? '')) wanted.set('from', moment(query.get('from')));
  wanted.set('bodies', bodies);
  return wanted;
}

// upTo returns the events before the end of a span, and whether it is reached.
function upTo(events, until) {
  if (!until) return {events, over: false};
  const after = events.findIndex(text => Date.parse(JSON.parse(member(text, 'time'))) >= until);
  return after < 0 ? {events, over: false} : {events: events.slice(0, after), over: true};
}

export function Feed({query}) {
  const [form, setForm] = useState(formOf(query));
  const [going, setGoing] = useState(true);
  const [hidden, setHidden] = useState(document.hidden);
  const [fault, setFault] = useState('');
  const [state, setState] = useState('connecting…');
  const [held, setHeld] = useState(0); // events that wait while somebody reads
  const rows = useRef();
  const counted = useRef();
  const applying = useRef(0);
  const reader = useRef({}); // what was read of which feed, across a pause
  const drawNow = useRef(() => {});
  const address = query.toString();
  useEffect(() => {
    setForm(formOf(query));
    return () => clearTimeout(applying.current);
  }, [address]);
  useEffect(() => {
    listCollections().catch(() => {});
    // A browser has few connections to a host: a tab that nobody sees leaves its own to others.
    const see = () => setHidden(document.hidden);
    document.addEventListener('visibilitychange', see);
    return () => document.removeEventListener('visibilitychange', see);
  }, []);

  // Not useEffect: that ends after its page is gone, and what comes meanwhile has no place.
  useLayoutEffect(() => {
    if (!going || hidden) return;
    if (reader.current.address !== address) {
      reader.current = {address, position: '', received: 0, counts: {}, now: false, queue: [], lately: []};
      [...rows.current.tBodies].forEach(body => body.remove());
      setHeld(0);
    }
    const r = reader.current;
    const until = instant(query.get('until') ?? '');
    const abort = new AbortController();
    let drawing = 0;
    let drawn = 0;
    const say = () => {
      const now = performance.now();
      r.lately = r.lately.filter(([at]) => at > now - 1000);
      const rate = r.lately.reduce((sum, [, n]) => sum + n, 0);
      const none = r.now && r.received === 0 && query.has('from');
      const parts = [none ? 'nothing up to now' : `${number(r.received - r.queue.length)} events`];
      if (rate > 20) parts.push(`${number(rate)} per second`);
      if (r.received > mostRows) parts.push(`the newest ${number(mostRows)} shown`);
      if (!r.now && r.position && status.peek()) {
        parts.push(`searched up to ${number(Number(r.position))} of ${number(status.peek().seq)}`);
      }
      counted.current.textContent = parts.join(', ');
      for (const [type, n] of Object.entries(r.counts)) {
        const place = document.getElementById(`n-${type}`);
        if (place) place.textContent = number(n);
      }
    };
    // reads is whether somebody looks at rows, which then stay where they are.
    const reads = () => rows.current.parentElement.matches(':hover, :focus-within') ||
      rows.current.parentElement.scrollTop > 0 || rows.current.querySelector('[aria-expanded=true]');
    const draw = anyway => {
      if (!rows.current) return; // the page has gone before its frame came
      drawing = 0;
      drawn = performance.now();
      const bodies = rows.current.tBodies;
      if (r.live && anyway !== true && reads()) {
        setHeld(r.queue.length);
        return;
      }
      setHeld(0);
      for (const text of r.queue.splice(0)) {
        if (bodies.length === 0 || bodies[0].rows.length >= chunk) {
          rows.current.tHead.after(document.createElement('tbody'));
        }
        bodies[0].prepend(row(text));
      }
      for (let n = rows.current.querySelectorAll('tbody tr').length; n > mostRows; n--) {
        const last = bodies[bodies.length - 1];
        last.lastElementChild.remove();
        if (!last.firstElementChild) last.remove();
      }
      r.live = r.now;
      say();
    };
    drawNow.current = draw;
    const soon = () => {
      drawing ||= setTimeout(() => requestAnimationFrame(draw), Math.max(0, drawn + drawEvery - performance.now()));
    };
    const take = ({events: all, last, now}) => {
      const {events, over} = upTo(all, until);
      r.position = last;
      r.now ||= now || over;
      r.over = over;
      setState(over ? 'all of the span' : r.now ? 'live' : 'searching…');
      r.received += events.length;
      r.lately.push([performance.now(), events.length]);
      r.queue.push(...events);
      for (const text of events) {
        const type = JSON.parse(member(text, 'type'));
        r.counts[type] = (r.counts[type] ?? 0) + 1;
      }
      if (r.queue.length > mostRows) r.queue.splice(0, r.queue.length - mostRows);
      soon();
      if (over) abort.abort();
    };
    setState('connecting…');
    setFault('');
    if (!r.over) {
      follow(feedOf(query, mostBody), r.position, abort.signal, take, text => {
        setFault(text);
        if (text) setState('connecting…');
      });
    }
    const leaving = () => r.queue.length > 0 && soon();
    rows.current.parentElement.addEventListener('pointerleave', leaving);
    const timer = setInterval(say, 1000);
    // A page that the browser keeps for "back" would keep its connection, of which there are few.
    const leave = () => {
      abort.abort();
      setGoing(false);
    };
    addEventListener('pagehide', leave);
    return () => {
      removeEventListener('pagehide', leave);
      rows.current?.parentElement.removeEventListener('pointerleave', leaving);
      abort.abort();
      clearInterval(timer);
      clearTimeout(drawing);
      if (rows.current && r.queue.length) draw(true);
    };
  }, [address, going, hidden]);

  const set = change => {
    const next = {...form, ...change};
    setForm(next);
    clearTimeout(applying.current);
    if (next.kind !== 'now' && !next.from.trim()) return;
    applying.current = setTimeout(() => go(addressOf(next), true), applyAfter);
  };
  const submit = e => {
    e.preventDefault();
    go(addressOf(form), true);
  };
  const choose = (type, chosen) => set({type: chosen ? [...form.type, type] : form.type.filter(t => t !== type)});
  const showHeld = () => {
    rows.current.parentElement.scrollTop = 0;
    drawNow.current(true);
  };
  const restorable = form.collection && form.type.length > 0 && form.type.every(type => lasts.includes(type));
  const names = collections.value?.map(c => c.id) ?? [];
  if (form.collection && !names.includes(form.collection)) names.unshift(form.collection);
  return html`<h1 class="hidden">Feed</h1>
    <form class="query" onSubmit=${submit}>
      <div class="line">
        <select aria-label="Collection" value=${form.collection} onChange=${e => set({collection: e.target.value})}>
          <option value="">all collections</option>
          ${names.map(name => html`<option value=${name}>${name}</option>`)}</select>
        <input class="text" aria-label="id" value=${form.id} spellcheck=${false} autocomplete="off" placeholder="any id"
          onInput=${e => set({id: e.target.value})} />
        <select aria-label="From" value=${form.kind} onChange=${e => set({kind: e.target.value, from: '', until: ''})}>
          <option value="now">from now</option>
          <option value="sequence">from a sequence</option>
          <option value="time">from a time</option></select>
        ${form.kind === 'sequence' && html`<input id="from" class="text" aria-label="Sequence" inputmode="numeric"
          placeholder="1" value=${form.from} onInput=${e => set({from: e.target.value})} />`}
        <button type="button" onClick=${() => setGoing(!going)}>${going ? 'Pause' : 'Resume'}</button>
        <span ref=${counted} class="counted">0 events</span>
        <span class="faint">${going ? state : 'paused'}</span>
      </div>
      ${form.kind === 'time' && html`<div class="row top">
        <${When} id="from" label="From" placeholder="1h, 2015-05-17T10:05:03Z" value=${form.from}
          onChange=${from => set({from})} />
        <${When} id="until" label="Until" placeholder="now" value=${form.until}
          onChange=${until => set({until})} /></div>`}
      <fieldset class="types"><legend class="hidden">Types</legend>
        ${Object.entries(types).map(([type, title]) => html`<label class="type">
          <input type="checkbox" checked=${form.type.includes(type)} onChange=${e => choose(type, e.target.checked)} />
          <span>${title} <span id="n-${type}" class="faint"></span></span></label>`)}</fieldset>
      <${Fault} error=${fault} />
    </form>
    ${about.value.write && restorable && html`<${RestoreAll} key=${address} name=${form.collection} query=${query} />`}
    <p class="news" hidden=${held === 0} role="status">
      <button type="button" onClick=${showHeld}>${number(held)}${held >= mostRows && '+'} new: show</button></p>
    <div class="scroll feed" role="region" aria-label="Events" tabindex="0"><table ref=${rows}>
      <thead><tr><th scope="col">Time</th><th scope="col">Type</th><th scope="col">Collection</th>
        <th scope="col">id</th><th scope="col">Rule</th><th scope="col">Content</th>
        <th scope="col" class="n">Sequence</th></tr></thead>
    </table></div>
    <p class="empty">No event yet.</p>`;
}

// endsOf reads a feed up to now, or to the end of its span, and returns the last end of each document.
async function endsOf(query, say, signal) {
  const until = instant(query.get('until') ?? '');
  const ends = new Map();
  const abort = new AbortController();
  signal.addEventListener('abort', () => abort.abort());
  await new Promise((done, fail) => {
    const take = ({events: all, now}) => {
      const {events, over} = upTo(all, until);
      for (const text of events) {
        const id = JSON.parse(member(text, 'id'));
        ends.set(id, {op: 'restore', id, body: {version: member(text, 'previous')}});
      }
      say(`${count(ends.size, 'document')} found …`);
      if (now || over) done();
    };
    const from = new URLSearchParams(query);
    if (!from.has('from')) from.set('from', '1');
    abort.signal.addEventListener('abort', done);
    follow(feedOf(from, 0), '', abort.signal, take, text => text && fail(new Error(text)));
  }).finally(() => abort.abort());
  return [...ends.values()];
}

// RestoreAll restores the documents whose ends the feed has, each to its last version.
function RestoreAll({name, query}) {
  const [found, setFound] = useState(null);
  const [refused, setRefused] = useState([]);
  const work = useWork();
  const find = () =>
    work.start(async signal => {
      const ends = await endsOf(query, work.say, signal);
      setFound(signal.aborted ? null : ends);
      setRefused([]);
      work.say('');
    });
  const run = () =>
    work.start(async signal => {
      setRefused(await changeAll(name, found, 'restored', work, signal));
      setFound(null);
    }, `Restore ${count(found.length, 'document')} of ${name}`);
  const span = query.has('until') ? 'in this span' : 'up to now';
  return html`<div class="card">
    <div class="row actions">
      <button type="button" disabled=${work.busy} onClick=${find}>Restore all …</button>
      ${found && !work.busy && html`
        <span>${count(found.length, 'document')} ended ${span}; the time to live of each counts from now.</span>
        ${found.length > 0 && html`<button type="button" class="primary" onClick=${run}>
          Restore ${count(found.length, 'document')}</button>`}`}
      ${work.busy && html`<button type="button" onClick=${work.stop}>Stop</button>`}
      <span role="status">${work.state}</span></div>
    <${Fault} error=${work.error} />
    <${Refused} all=${refused} by="id" />
  </div>`;
}

// row makes the row of an event. Everything goes in as text.
function row(text) {
  const raw = Object.fromEntries(members(text));
  const value = name => (raw[name] === undefined ? undefined : JSON.parse(raw[name]));
  const tr = document.createElement('tr');
  const cell = (content, kind) => {
    const td = tr.insertCell();
    if (kind) td.className = kind;
    td.append(content ?? '');
  };
  const span = (kind, text) => {
    const element = document.createElement('span');
    element.className = kind;
    element.textContent = text;
    return element;
  };
  const anchor = (href, label) => {
    const a = document.createElement('a');
    const b = document.createElement('bdi');
    a.href = href;
    a.title = label;
    b.textContent = label;
    a.append(b);
    return a;
  };
  const time = document.createElement('time');
  time.dataset.ms = Date.parse(value('time'));
  time.dataset.fine = '';
  show(time);
  const [type, collection, id] = ['type', 'collection', 'id'].map(value);
  const more = document.createElement('button');
  more.type = 'button';
  more.className = 'more';
  more.textContent = number(value('seq'));
  more.setAttribute('aria-expanded', 'false');
  more.onclick = () => open(tr, more, value('seq'));
  cell(time);
  cell(span(`badge ${kinds[type] ?? ''}`, types[type] ?? type), type === 'DocumentExpired' ? 'expired' : '');
  cell(anchor(link('collections', collection), collection));
  cell(id === undefined ? '' : anchor(link('documents', collection, id), id), 'id');
  cell(raw.rule ? `${value('rule')}, ${duration(value('ttl'))}` : '');
  const code = document.createElement('code');
  code.className = 'preview';
  code.textContent = raw.body ?? (raw.bodyBytes ? `${number(value('bodyBytes'))} bytes` : '');
  cell(code);
  cell(more, 'n');
  return tr;
}

// open shows all of a row's event below it, or closes that.
function open(tr, more, seq) {
  const opened = more.getAttribute('aria-expanded') === 'true';
  more.setAttribute('aria-expanded', String(!opened));
  if (opened) {
    tr.nextSibling?.remove();
    return;
  }
  const cell = document.createElement('tr').insertCell();
  cell.colSpan = 7;
  tr.after(cell.parentElement);
  render(html`<${Whole} seq=${seq} />`, cell);
}

// versionBefore returns the content before an event, following versions that only renewed it.
async function versionBefore(text) {
  for (let seq; (seq = text && member(text, 'previous')) !== undefined;) {
    text = await eventAt(JSON.parse(seq));
    if (text && member(text, 'type') !== '"DocumentTouched"') return member(text, 'body');
  }
}

function Whole({seq}) {
  const [got, setGot] = useState(null);
  const [error, setError] = useState(null);
  const [restored, setRestored] = useState(false);
  useEffect(() => {
    (async () => {
      const text = await eventAt(seq);
      if (!text) throw new Error('The log has this event no more.');
      setGot({
        text,
        before: member(text, 'type') === '"DocumentReplaced"' ? await versionBefore(text) : undefined,
      });
    })().catch(setError);
  }, []);
  if (!got) return html`<${Fault} error=${error} />${!error && html`<p class="loading">Loading…</p>`}`;
  const value = name => JSON.parse(member(got.text, name) ?? 'null');
  const [collection, id, trace] = ['collection', 'id', 'traceparent'].map(value);
  const body = member(got.text, 'body');
  return html`<p>
    ${id !== null &&
    html`<a href=${link('documents', collection, id)}>Document</a> · <a
    href=${at(['feed'], {collection, id, from: 1})}>All its events</a> · `}
    <a href=${at(['feed'], {from: seq})}>This event and what came after it</a>
    ${trace && html` · trace <code>${trace.slice(3, 35)}</code>`}
    </p>
    ${got.before &&
      html`<h2>Changes</h2><${Diff} before=${pretty(content(got.before))} after=${pretty(content(body))} />`}
    ${body && html`<h2>Content</h2><${JSONText} text=${pretty(body)} label="Content at sequence ${seq}" />`}
    ${!body && html`<p class="faint">It has no content.</p>`}
    ${about.value.write && lasts.includes(value('type')) &&
      html`<p>
      <${Restore} name=${collection} id=${id} version=${value('previous')}
      onChanged=${() => setRestored(true)}>Restore<//> <span class="good" role="status">
      ${restored && 'Restored'}
      </span>
      </p>`}`;
}
