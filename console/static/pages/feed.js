// Feed: events as they come. Rows are made once and never drawn again.
import {html, useLayoutEffect, useRef, useState} from '../html.js';
import {follow} from '../api.js';
import {show} from '../state.js';
import {number, duration} from '../format.js';
import {members} from '../json.js';
import {link} from '../route.js';
import {Fault} from '../parts.js';

const types = ['DocumentCreated', 'DocumentReplaced', 'DocumentTouched', 'DocumentDeleted', 'DocumentExpiring', 'DocumentExpired', 'DocumentHeld', 'DocumentReleased', 'CollectionCreated', 'CollectionReplaced', 'CollectionDeleted', 'MutationRejected'];
const mostRows = 1000, mostBody = 400; // bytes of a body that a row shows

// begin is where the feed begins, as the console takes it. A time without a zone is in UTC.
function begin(kind, text) {
  if (kind === 'now') return '';
  if (kind === 'sequence') return text.trim();
  return new Date(text.trim() + (/(Z|[+-]\d\d:?\d\d)$/i.test(text.trim()) ? '' : 'Z')).toISOString();
}

export function Feed({query}) {
  const [form, setForm] = useState({type: query.getAll('type'), collection: query.get('collection') ?? '', id: query.get('id') ?? '', kind: 'now', at: ''});
  const [going, setGoing] = useState(true);
  const [fault, setFault] = useState('');
  const [waiting, setWaiting] = useState(true);
  const rows = useRef(), counted = useRef();
  const position = useRef(''), begun = useRef(false), queue = useRef([]), received = useRef(0), lately = useRef([]);

  const restart = () => {
    begun.current = false;
    setGoing(false);
    setTimeout(() => setGoing(true));
  };

  // Not useEffect: that ends after its page is gone, and what comes meanwhile has no place.
  useLayoutEffect(() => {
    if (!going) return;
    if (!begun.current) { // not in restart: until here the feed before it goes on
      begun.current = true;
      position.current = '';
      queue.current = [];
      received.current = 0;
      lately.current = [];
      rows.current.replaceChildren();
    }
    let q;
    try {
      q = new URLSearchParams({bodies: String(mostBody)});
      form.type.forEach(type => q.append('type', type));
      if (form.collection) q.append('collection', form.collection);
      if (form.id) q.append('id', form.id);
      const from = begin(form.kind, form.at);
      if (from) q.append('from', from);
    } catch {
      setFault('Give a time like 2015-05-17T10:05:03Z.');
      return;
    }
    const abort = new AbortController();
    let frame = 0;
    const draw = () => {
      frame = 0;
      const texts = queue.current.splice(0);
      rows.current.prepend(...texts.toReversed().map(row));
      while (rows.current.childElementCount > mostRows) rows.current.lastElementChild.remove();
      say();
    };
    const say = () => {
      const now = performance.now();
      lately.current = lately.current.filter(([at]) => at > now - 1000);
      const rate = lately.current.reduce((sum, [, n]) => sum + n, 0);
      counted.current.textContent = `${number(received.current - queue.current.length)} events` + (rate > 20 ? `, ${number(rate)} per second` : '') + (received.current > mostRows ? `, the newest ${number(mostRows)} shown` : '');
    };
    setWaiting(true);
    follow(q, position.current, abort.signal, (events, last) => {
      position.current = last;
      setWaiting(false);
      received.current += events.length;
      lately.current.push([performance.now(), events.length]);
      queue.current.push(...events);
      if (queue.current.length > mostRows) queue.current.splice(0, queue.current.length - mostRows);
      if (queue.current.length > 0 && !frame) frame = requestAnimationFrame(draw);
    }, text => { setFault(text); setWaiting(text !== ''); });
    const timer = setInterval(say, 1000);
    // A page that the browser keeps for "back" would keep its connection, of which there are few.
    const leave = () => { abort.abort(); setGoing(false); };
    addEventListener('pagehide', leave);
    return () => { removeEventListener('pagehide', leave); abort.abort(); clearInterval(timer); cancelAnimationFrame(frame); if (rows.current && queue.current.length) draw(); };
  }, [going]);

  const set = change => setForm({...form, ...change});
  return html`<h1>Feed</h1>
    <form class="card" onSubmit=${e => { e.preventDefault(); restart(); }}>
      <div class="row">
        <label class="field">Collection <input value=${form.collection} spellcheck=${false} autocomplete="off" placeholder="all" onInput=${e => set({collection: e.target.value.trim()})} /></label>
        <label class="field">id <input value=${form.id} spellcheck=${false} autocomplete="off" placeholder="all" onInput=${e => set({id: e.target.value})} /></label>
        <label class="field">From <select value=${form.kind} onChange=${e => set({kind: e.target.value})}>
          <option value="now">now</option><option value="sequence">a sequence</option><option value="time">a time (UTC)</option></select></label>
        ${form.kind !== 'now' && html`<label class="field">${form.kind === 'time' ? 'Time' : 'Sequence'} <input required value=${form.at}
          placeholder=${form.kind === 'time' ? '2015-05-17T10:05:03' : '1'} onInput=${e => set({at: e.target.value})} /></label>`}
      </div>
      <fieldset class="types"><legend>Types</legend>${types.map(type => html`
        <label class="check"><input type="checkbox" checked=${form.type.includes(type)} onChange=${e => set({type: e.target.checked ? [...form.type, type] : form.type.filter(t => t !== type)})} /> ${type}</label>`)}</fieldset>
      <p class="row actions"><button class="primary">Start</button>
        <button type="button" onClick=${() => setGoing(!going)}>${going ? 'Pause' : 'Go on'}</button>
        <span ref=${counted} class="counted">0 events</span>
        <span class="faint">${!going ? 'paused' : waiting ? 'connecting…' : 'live'}</span></p>
      <${Fault} error=${fault} />
    </form>
    <div class="scroll feed" role="region" aria-label="Events" tabindex="0"><table>
      <thead><tr><th scope="col" class="n">Sequence</th><th scope="col">Time</th><th scope="col">Type</th><th scope="col">Collection</th><th scope="col">id</th><th scope="col">Content</th></tr></thead>
      <tbody ref=${rows}></tbody></table></div>
    <p class="empty">No event yet.</p>`;
}

// row makes the row of an event. Everything goes in as text.
function row(text) {
  const raw = Object.fromEntries(members(text));
  const value = name => raw[name] === undefined ? undefined : JSON.parse(raw[name]);
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
  const type = value('type'), collection = value('collection'), id = value('id');
  cell(number(value('seq')), 'n');
  cell(time);
  cell(type, type === 'DocumentExpired' ? 'expired' : '');
  cell(anchor(link('collections', collection), collection));
  cell(id === undefined ? '' : anchor(link('documents', collection, id), id), 'id');
  const code = document.createElement('code');
  code.className = 'preview';
  code.textContent = (raw.rule ? `${value('rule')} ttl ${duration(value('ttl'))} ` : '') + (raw.body ?? (raw.bodyBytes ? `${number(value('bodyBytes'))} bytes` : ''));
  cell(code);
  return tr;
}
