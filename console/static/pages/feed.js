// Feed: events as they come. Rows are made once and never drawn again.
import {html, render, useEffect, useLayoutEffect, useRef, useState} from '../vendor/libraries.js';
import {eventAt, follow} from '../events.js';
import {about, show, status} from '../state.js';
import {count, number, duration} from '../format.js';
import {content, member, members, pretty} from '../json.js';
import {Diff} from '../diff.js';
import {changeAll, Refused, useWork} from '../many.js';
import {at, go, link} from '../route.js';
import {Fault, instant, JSONText, Restore, When} from '../parts.js';

const types = [
  'DocumentCreated',
  'DocumentReplaced',
  'DocumentTouched',
  'DocumentDeleted',
  'DocumentExpiring',
  'DocumentExpired',
  'DocumentHeld',
  'DocumentReleased',
  'CollectionCreated',
  'CollectionReplaced',
  'CollectionDeleted',
  'MutationRejected',
];
const mostRows = 1000,
  mostBody = 400; // bytes of a body that a row shows
const lasts = ['DocumentExpired', 'DocumentDeleted']; // may be restored
const chunk = 50; // rows of a body of the table: the browser lays out and draws those in sight
const drawEvery = 300,
  applyAfter = 300; // ms

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
  };
}

function addressOf(form) {
  const from = form.kind === 'now' ? '' : form.kind === 'time' ? iso(form.from) : form.from.trim();
  return at(
    ['feed'],
    [
      ...form.type.map(type => ['type', type]),
      ['collection', form.collection],
      ['id', form.id],
      ['from', from],
    ],
  );
}

// iso is a time as the console takes it.
const iso = text =>
  instant(text.trim()) === undefined ? text : new Date(instant(text.trim())).toISOString();

export function Feed({query}) {
  const [form, setForm] = useState(formOf(query));
  const [going, setGoing] = useState(true);
  const [fault, setFault] = useState('');
  const [state, setState] = useState('connecting…');
  const rows = useRef(),
    counted = useRef(),
    applying = useRef(0);
  const reader = useRef({}); // what was read of which feed, across a pause
  const address = query.toString();
  useEffect(() => {
    setForm(formOf(query));
    return () => clearTimeout(applying.current);
  }, [address]);

  // Not useEffect: that ends after its page is gone, and what comes meanwhile has no place.
  useLayoutEffect(() => {
    if (!going) return;
    if (reader.current.address !== address) {
      reader.current = {address, position: '', received: 0, now: false, queue: [], lately: []};
      [...rows.current.tBodies].forEach(body => body.remove());
    }
    const r = reader.current;
    const wanted = new URLSearchParams(query);
    wanted.set('bodies', mostBody);
    if (/\D/.test(query.get('from') ?? '')) wanted.set('from', iso(query.get('from')));
    const abort = new AbortController();
    let drawing = 0,
      drawn = 0;
    const say = () => {
      const now = performance.now();
      r.lately = r.lately.filter(([at]) => at > now - 1000);
      const rate = r.lately.reduce((sum, [, n]) => sum + n, 0);
      counted.current.textContent =
        (r.now && r.received === 0 && query.has('from')
          ? 'nothing up to now'
          : `${number(r.received - r.queue.length)} events`) +
        (rate > 20 ? `, ${number(rate)} per second` : '') +
        (r.received > mostRows ? `, the newest ${number(mostRows)} shown` : '') +
        (!r.now && r.position && status.peek()
          ? `, searched up to ${number(Number(r.position))} of ${number(status.peek().seq)}`
          : '');
    };
    const draw = () => {
      drawing = 0;
      drawn = performance.now();
      const bodies = rows.current.tBodies;
      for (const text of r.queue.splice(0)) {
        if (bodies.length === 0 || bodies[0].rows.length >= chunk)
          rows.current.tHead.after(document.createElement('tbody'));
        bodies[0].prepend(row(text));
      }
      for (let n = rows.current.querySelectorAll('tbody tr').length; n > mostRows; n--) {
        const last = bodies[bodies.length - 1];
        last.lastElementChild.remove();
        if (!last.firstElementChild) last.remove();
      }
      say();
    };
    setState('connecting…');
    setFault('');
    follow(
      wanted,
      r.position,
      abort.signal,
      ({events, last, now}) => {
        r.position = last;
        r.now ||= now;
        setState(r.now ? 'live' : 'searching…');
        r.received += events.length;
        r.lately.push([performance.now(), events.length]);
        r.queue.push(...events);
        if (r.queue.length > mostRows) r.queue.splice(0, r.queue.length - mostRows);
        drawing ||= setTimeout(
          () => requestAnimationFrame(draw),
          Math.max(0, drawn + drawEvery - performance.now()),
        );
      },
      text => {
        setFault(text);
        if (text) setState('connecting…');
      },
    );
    const timer = setInterval(say, 1000);
    // A page that the browser keeps for "back" would keep its connection, of which there are few.
    const leave = () => {
      abort.abort();
      setGoing(false);
    };
    addEventListener('pagehide', leave);
    return () => {
      removeEventListener('pagehide', leave);
      abort.abort();
      clearInterval(timer);
      clearTimeout(drawing);
      if (rows.current && r.queue.length) draw();
    };
  }, [going, address]);

  const set = change => {
    const next = {...form, ...change};
    setForm(next);
    clearTimeout(applying.current);
    if (next.kind === 'now' || next.from.trim())
      applying.current = setTimeout(() => go(addressOf(next), true), applyAfter);
  };
  return html`<h1>Feed</h1>
    <form class="card" onSubmit=${e => {
      e.preventDefault();
      go(addressOf(form), true);
    }}>
      <div class="row">
        <label
          class="field">Collection <input value=${form.collection} spellcheck=${false} autocomplete="off"
          placeholder="all" onInput=${e => set({collection: e.target.value.trim()})} />
          </label>
        <label
          class="field">id <input value=${form.id} spellcheck=${false} autocomplete="off" placeholder="all"
          onInput=${e => set({id: e.target.value})} />
          </label>
        <label class="field">From <select value=${form.kind} onChange=${e => set({kind: e.target.value, from: ''})}>
          <option value="now">now</option><option value="sequence">a sequence</option>
            <option value="time">a time</option>
            </select>
            </label>
        ${form.kind === 'sequence' &&
          html`<label
          class="field">Sequence <input id="from" inputmode="numeric" placeholder="1" value=${form.from}
          onInput=${e => set({from: e.target.value})} />
          </label>`}
        ${form.kind === 'time' &&
          html`<${When} id="from" label="Time" placeholder="2015-05-17T10:05:03Z" value=${form.from}
          onChange=${text => set({from: text})} />`}
      </div>
      <fieldset class="types"><legend>Types</legend>${types.map(
        type => html`
        <label class="check">
          <input type="checkbox" checked=${form.type.includes(type)}
          onChange=${e => set({type: e.target.checked ? [...form.type, type]
          : form.type.filter(t => t !== type)})} /> ${type}
          </label>`,
      )}</fieldset>
      <p class="row actions">
        <button type="button" onClick=${() => setGoing(!going)}>${going ? 'Pause' : 'Go on'}</button>
        <span ref=${counted} class="counted">0 events</span>
        <span class="faint">${going ? state : 'paused'}</span></p>
      <${Fault} error=${fault} />
    </form>
    ${about.value.write && form.collection && form.type.length > 0 &&
      form.type.every(type => lasts.includes(type)) &&
      html`<${RestoreAll} key=${address} name=${form.collection} rows=${rows} />`}
    <div class="scroll feed" role="region" aria-label="Events" tabindex="0"><table ref=${rows}>
      <thead>
        <tr><th scope="col" class="n">Sequence</th><th scope="col">Time</th><th scope="col">Type</th>
        <th scope="col">Collection</th><th scope="col">id</th><th scope="col">Content</th>
        </tr>
        </thead>
        </table>
        </div>
    <p class="empty">No event yet.</p>`;
}

// RestoreAll restores the documents whose ends are shown, each to its last version.
function RestoreAll({name, rows}) {
  const [found, setFound] = useState(null);
  const [refused, setRefused] = useState([]);
  const work = useWork();
  const find = () => {
    // rows are newest first
    const ends = [...rows.current.querySelectorAll('tr[data-end]')]
      .map(tr => JSON.parse(tr.dataset.end))
      .reverse();
    setFound([...new Map(ends.map(end => [end.id, end])).values()]);
    setRefused([]);
    work.say('');
  };
  const run = () =>
    work.start(async signal => {
      setRefused(await changeAll(name, found, 'restored', work, signal));
      setFound(null);
    });
  return html`<div class="card">
    <div class="row actions">
    <button type="button" disabled=${work.busy} onClick=${find}>Restore all that are shown</button>
    ${
      found &&
      !work.busy &&
      html`<span>${count(found.length, 'document')}; the time to live of each counts from now.</span>
      ${found.length > 0 &&
        html`<button type="button" class="primary" onClick=${run}>Restore ${count(found.length, 'document')}
        </button>`}`
    }
    ${work.busy && html`<button type="button" onClick=${work.stop}>Stop</button>`}
    <span role="status">${work.state}</span></div><${Fault} error=${work.error} />
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
  const anchor = (href, label) => {
    const a = document.createElement('a');
    const b = document.createElement('bdi');
    a.href = href;
    b.textContent = label;
    a.append(b);
    return a;
  };
  const time = document.createElement('time');
  time.dataset.ms = Date.parse(value('time'));
  time.dataset.fine = '';
  show(time);
  const type = value('type'),
    collection = value('collection'),
    id = value('id');
  if (lasts.includes(type))
    tr.dataset.end = JSON.stringify({op: 'restore', id, body: {version: String(value('previous'))}});
  const more = document.createElement('button');
  more.type = 'button';
  more.className = 'more';
  more.textContent = number(value('seq'));
  more.setAttribute('aria-expanded', 'false');
  more.onclick = () => open(tr, more, value('seq'));
  cell(more, 'n');
  cell(time);
  cell(type, type === 'DocumentExpired' ? 'expired' : '');
  cell(anchor(link('collections', collection), collection));
  cell(id === undefined ? '' : anchor(link('documents', collection, id), id), 'id');
  const code = document.createElement('code');
  code.className = 'preview';
  code.textContent =
    (raw.rule ? `${value('rule')} ttl ${duration(value('ttl'))} ` : '') +
    (raw.body ?? (raw.bodyBytes ? `${number(value('bodyBytes'))} bytes` : ''));
  cell(code);
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
  cell.colSpan = 6;
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
  const collection = value('collection'),
    id = value('id'),
    body = member(got.text, 'body');
  return html`<p>
    ${id !== null &&
    html`<a href=${link('documents', collection, id)}>Document</a> · <a
    href=${at(['feed'], {collection, id, from: 1})}>All its events</a> · `}
    <a href=${at(['feed'], {from: seq})}>This event and what came after it</a>
    </p>
    ${got.before &&
      html`<h3>Changes</h3><${Diff} before=${pretty(content(got.before))} after=${pretty(content(body))} />`}
    ${body && html`<h3>Content</h3><${JSONText} text=${pretty(body)} label="Content at sequence ${seq}" />`}
    ${!body && html`<p class="faint">It has no content.</p>`}
    ${about.value.write && lasts.includes(value('type')) &&
      html`<p>
      <${Restore} name=${collection} id=${id} version=${value('previous')}
      onChanged=${() => setRestored(true)}>Restore<//> <span class="good" role="status">
      ${restored && 'Restored'}
      </span>
      </p>`}`;
}
