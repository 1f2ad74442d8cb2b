// Many documents at once: all that match a query, or those that are selected. They are counted
// first, and each is changed only in the version that was counted.
import {html, useEffect, useRef, useState} from './html.js';
import {call} from './api.js';
import {about, clock} from './state.js';
import {count, duration, number} from './format.js';
import {content, elements, member} from './json.js';
import {Fault, Seconds, secondsOf, Table} from './parts.js';

const pageSize = 1000, batchSize = 200, mostShown = 100, mostUnasked = 100;

// pages yields the replies to a query, whose request is made of what is added to it.
async function* pages(name, request, signal) {
  let cursor;
  do {
    const text = await call('query', {collection: name, signal, body: request({limit: pageSize, ...(cursor && {cursor: JSON.stringify(cursor)})})});
    yield text;
    cursor = JSON.parse(member(text, 'cursor') ?? 'null');
  } while (cursor);
}

const changes = {
  delete: {title: 'Delete', done: 'deleted', effect: () => 'Their last content stays in the log.', ask: true},
  ttl: {title: 'Set the time to live of', op: 'patch', done: 'changed', body: ({seconds}) => ({ttl: seconds}), ask: true,
    effect: (all, {seconds}) => `Each expires ${duration(seconds)} after its change: ${number(all.filter(d => d.deadline === null || d.deadline > clock() / 1000 + seconds).length)} of them sooner than now.`},
  touch: {title: 'Touch', done: 'renewed', effect: () => 'The countdown of each starts again.'},
  hold: {title: 'Hold', done: 'held', body: ({reason}) => reason ? {reason} : undefined, effect: () => 'None expires or can be deleted until its release.'},
  release: {title: 'Release', done: 'released', held: true, ask: true, effect: () => 'Those that are overdue expire at once.'},
};

export function Many({name, request, selected, onDone}) {
  const [op, setOp] = useState('delete');
  const [n, setN] = useState(null);
  const [unit, setUnit] = useState('hours');
  const [reason, setReason] = useState('');
  const [found, setFound] = useState(null); // what would be changed
  const [typed, setTyped] = useState('');
  const [state, setState] = useState('');
  const [refused, setRefused] = useState([]);
  const [error, setError] = useState(null);
  const running = useRef(null);
  useEffect(() => () => running.current?.abort(), []);
  const change = changes[op], values = {seconds: secondsOf(n, unit), reason};
  const ready = op !== 'ttl' || values.seconds >= 1 && Number.isInteger(values.seconds);

  const work = async task => {
    const abort = running.current = new AbortController();
    setError(null); setRefused([]); setState('…');
    try { await task(abort.signal); } catch (fault) { if (!abort.signal.aborted) setError(fault); setState(''); }
    running.current = null;
    setFound(found => found && [...found]); // draw again
  };
  const find = () => work(async signal => {
    let all = selected;
    if (all.length === 0) {
      all = [];
      for await (const text of pages(name, more => request({...more, select: ['/id', '/_etag'], deadlines: true, ...(change.held && {held: true})}), signal)) {
        all.push(...JSON.parse(text).documents.map(({id, _etag, _deadline}) => ({id, etag: _etag, deadline: _deadline})));
        setState(`${count(all.length, 'document')} found …`);
      }
    }
    setFound(all); setTyped(''); setState('');
  });
  const run = () => work(async signal => {
    const failed = [];
    let done = 0;
    const say = () => `${number(done)} of ${number(found.length)} ${change.done}`;
    for (let i = 0; i < found.length && !signal.aborted; i += batchSize) {
      const part = found.slice(i, i + batchSize), body = change.body?.(values);
      const {results} = JSON.parse(await call('batch', {collection: name, body: {operations: part.map(({id, etag}) => ({op: change.op ?? op, id, ifMatch: etag, ...(body && {body})}))}}));
      results.forEach(({code, body}, j) => code < 300 ? done++ : failed.push({id: part[j].id, why: code === 412 ? 'It has changed since it was counted.' : body?.message ?? `code ${code}`}));
      setState(say() + ' …');
    }
    setState(say() + (signal.aborted ? ', stopped' : '')); setRefused(failed); setFound(null);
    onDone();
  });
  const download = () => work(async signal => {
    const parts = [];
    let all = 0;
    for await (const text of pages(name, request, signal)) {
      const documents = elements(member(text, 'documents'));
      parts.push(new Blob(documents.map(text => content(text) + '\n'))); // the browser keeps it on disk
      setState(`${count(all += documents.length, 'document')} read …`);
    }
    const a = document.createElement('a');
    a.href = URL.createObjectURL(new Blob(parts, {type: 'application/x-ndjson'}));
    a.download = `${name}.ndjson`;
    a.click();
    URL.revokeObjectURL(a.href);
    setState(`${count(all, 'document')} downloaded`);
  });
  const asks = found && change.ask && found.length > mostUnasked;
  return html`<details class="card"><summary>${selected.length > 0 ? count(selected.length, 'selected document') : 'All that match'}: change or download</summary>
    <div class="row actions">
      ${about.value.write && html`
        <select aria-label="Change" value=${op} onChange=${e => { setOp(e.target.value); setFound(null); setState(''); }}>${Object.entries(changes).map(([value, {title}]) => html`<option value=${value}>${title}</option>`)}</select>
        ${op === 'ttl' && html`<${Seconds} label="Time to live of all" value=${n} unit=${unit} onChange=${(value, u) => { setN(value); setUnit(u); }} />`}
        ${op === 'hold' && html`<input class="reason" aria-label="Reason of the holds" placeholder="reason, optional" maxlength="1024" value=${reason} onInput=${e => setReason(e.target.value)} />`}
        <button type="button" disabled=${!ready || running.current} onClick=${find}>Count</button>`}
      <button type="button" disabled=${running.current} onClick=${download}>Download as NDJSON</button>
      ${running.current && html`<button type="button" onClick=${() => running.current.abort()}>Stop</button>`}
      <span role="status">${state}</span></div>
    ${found && !running.current && html`<p>${count(found.length, 'document')}. ${found.length > 0 && change.effect(found, values)}</p>
      ${asks && html`<label class="field warn">Type <strong>${name}</strong> to confirm <input autocomplete="off" spellcheck=${false} value=${typed} onInput=${e => setTyped(e.target.value)} /></label>`}
      ${found.length > 0 && html`<button type="button" class="danger" disabled=${asks && typed !== name} onClick=${run}>${change.title} ${count(found.length, 'document')}</button>`}`}
    <${Fault} error=${error} />
    ${refused.length > 0 && html`<p>${number(refused.length)} refused:</p><${Table} label="Refused" head=${[['id'], ['Why']]}>
      ${refused.slice(0, mostShown).map(({id, why}) => html`<tr key=${id}><td class="id"><bdi>${id}</bdi></td><td>${why}</td></tr>`)}<//>
      ${refused.length > mostShown && html`<p class="faint">The first ${mostShown} are shown.</p>`}`}
  </details>`;
}
