// Many documents at once: all that match a query, or those that are selected. Those that match
// are counted first, and each is changed only in the version that was counted.
import {html, useEffect, useRef, useState} from './vendor/libraries.js';
import {call} from './api.js';
import {about, clock, work as underWay} from './state.js';
import {count, duration, number} from './format.js';
import {content, elements, legalTTL, member} from './json.js';
import {Fault, Seconds, secondsOf, Table} from './parts.js';
import {pages} from './query.js';

const batchSize = 200;
const getsAtOnce = 6;
const mostShown = 100;
const mostUnasked = 100;

const changes = {
  delete: {title: 'Delete', done: 'deleted', effect: () => 'Their last content stays in the log.', ask: true},
  ttl: {
    title: 'Set the time to live of',
    op: 'patch',
    done: 'changed',
    body: ({seconds}) => ({ttl: seconds}),
    ask: true,
    effect: (all, {seconds}) => {
      const at = clock() / 1000 + seconds;
      const sooner = all.filter(d => d.deadline === null || d.deadline > at).length;
      return `Each expires ${duration(seconds)} after its change: ${number(sooner)} of them sooner than now.`;
    },
  },
  touch: {title: 'Touch', done: 'renewed', effect: () => 'The countdown of each starts again.'},
  hold: {
    title: 'Hold',
    done: 'held',
    body: ({reason}) => (reason ? {reason} : undefined),
    effect: () => 'None expires or can be deleted until its release.',
  },
  release: {
    title: 'Release',
    done: 'released',
    held: true,
    ask: true,
    effect: () => 'Those that are overdue expire at once.',
  },
};

// useWork is a task that takes long, can be stopped, and says how far it is. One with a title
// goes on when its page is left, and the header shows it; there is one of these at a time.
export function useWork() {
  const [busy, setBusy] = useState(false);
  const [state, setState] = useState('');
  const [error, setError] = useState(null);
  const running = useRef(null);
  const stop = () => running.current?.abort.abort();
  useEffect(() => () => !running.current?.title && stop(), []);
  const say = text => {
    setState(text);
    if (running.current?.title) underWay.value = {title: running.current.title, state: text, stop};
  };
  const start = async (task, title) => {
    if (title && underWay.peek()) {
      setError(new Error(`Another change is under way: wait until it is over, or stop it.`));
      return;
    }
    const abort = new AbortController();
    running.current = {abort, title};
    setBusy(true);
    setError(null);
    say('…');
    try {
      await task(abort.signal);
    } catch (fault) {
      if (!abort.signal.aborted) setError(fault);
      say('');
    }
    running.current = null;
    if (title) underWay.value = null;
    setBusy(false);
  };
  return {busy, state, say, error, start, stop};
}

// save lets the browser save parts of text as a file.
export function save(parts, name) {
  const a = document.createElement('a');
  a.href = URL.createObjectURL(new Blob(parts, {type: 'application/x-ndjson'}));
  a.download = name;
  a.click();
  URL.revokeObjectURL(a.href);
}

// changeAll sends operations in batches until signal aborts. It says how far it is, and returns
// those that are refused, with the reasons.
export async function changeAll(name, operations, done, {say}, signal) {
  const refused = [];
  let n = 0;
  const far = () => `${number(n)} of ${number(operations.length)} ${done}`;
  const why = {409: 'It lives already.', 412: 'It has changed since it was counted.'};
  for (let i = 0; i < operations.length && !signal.aborted; i += batchSize) {
    const part = operations.slice(i, i + batchSize);
    const {results} = JSON.parse(await call('batch', {collection: name, body: {operations: part}}));
    results.forEach(({code, body}, j) => {
      if (code < 300) n++;
      else refused.push([part[j].id, why[code] ?? body?.message ?? `code ${code}`]);
    });
    say(far() + ' …');
  }
  say(far() + (signal.aborted ? ', stopped' : ''));
  return refused;
}

// Refused lists what was refused, by what, and why.
export function Refused({all, by}) {
  if (all.length === 0) return '';
  return html`<p>${number(all.length)} refused:</p>
    <${Table} label="Refused" head=${[[by], ['Why']]}>
      ${all.slice(0, mostShown).map(([what, why]) => html`<tr key=${what}>
        <td class="id"><bdi>${what}</bdi></td><td>${why}</td></tr>`)}
    <//>
    ${all.length > mostShown && html`<p class="faint">The first ${mostShown} are shown.</p>`}`;
}

// texts yields the documents with ids as text, those that live.
async function* texts(name, ids, signal) {
  for (let i = 0; i < ids.length; i += getsAtOnce) {
    const part = ids.slice(i, i + getsAtOnce).map(id =>
      call('document.get', {collection: name, id, signal}).catch(fault => {
        if (fault.code !== 404) throw fault;
      }),
    );
    yield (await Promise.all(part)).filter(Boolean);
  }
}

// Many changes and downloads what a query, whose condition is said, matches, or what is selected.
export function Many({name, request, said, selected, onDone}) {
  const [op, setOp] = useState('');
  const [n, setN] = useState(null);
  const [unit, setUnit] = useState('hours');
  const [reason, setReason] = useState('');
  const [found, setFound] = useState(null); // {by, all}: what would be changed, and by what
  const [typed, setTyped] = useState('');
  const [refused, setRefused] = useState([]);
  const work = useWork();
  const change = changes[op];
  const values = {seconds: secondsOf(n, unit), reason};
  const ready = op !== 'ttl' || legalTTL(values.seconds);
  // What was counted for one change is not for another.
  const by = JSON.stringify([op, values, request({}), selected.map(d => [d.id, d.etag])]);
  const ofAll = selected.length === 0;
  const counted = found?.by === by ? found.all : null;
  const all = !ready || !change ? null : ofAll ? counted : selected;
  const asks = all && change.ask && all.length > mostUnasked;
  const scope = ofAll ? `all that match ${said}` : 'which are selected';
  useEffect(() => setTyped(''), [by]);

  const find = (op, by) =>
    work.start(async signal => {
      const all = [];
      const more = {select: ['/id', '/_etag'], deadlines: true, ...(changes[op].held && {held: true})};
      for await (const text of pages(name, page => request({...page, ...more}), signal)) {
        all.push(...JSON.parse(text).documents.map(d => ({id: d.id, etag: d._etag, deadline: d._deadline})));
        work.say(`${count(all.length, 'document')} found …`);
      }
      setFound({by, all});
      work.say('');
    });
  const choose = next => {
    setOp(next);
    setRefused([]);
    work.say('');
    const now = JSON.parse(by);
    if (next && next !== 'ttl' && ofAll) find(next, JSON.stringify([next, ...now.slice(1)]));
  };
  const run = () =>
    work.start(async signal => {
      const body = change.body?.(values);
      const operations = all.map(({id, etag}) => ({op: change.op ?? op, id, ifMatch: etag, ...(body && {body})}));
      setRefused(await changeAll(name, operations, change.done, work, signal));
      setFound(null);
      setOp('');
      onDone();
    }, `${change.title} ${count(all.length, 'document')} of ${name}`);
  const download = () =>
    work.start(async signal => {
      const parts = [];
      let n = 0;
      const add = documents => {
        parts.push(new Blob(documents.map(text => content(text) + '\n'))); // the browser keeps it on disk
        work.say(`${count((n += documents.length), 'document')} read …`);
      };
      if (!ofAll) {
        for await (const some of texts(name, selected.map(d => d.id), signal)) add(some);
      } else {
        for await (const text of pages(name, request, signal)) add(elements(member(text, 'documents')));
      }
      save(parts, `${name}.ndjson`);
      work.say(`${count(n, 'document')} downloaded`);
    });

  const choices = Object.entries(changes).map(([value, {title}]) => html`<option value=${value}>${title} …</option>`);
  return html`<div class="many ${change || !ofAll ? 'on' : ''}">
    <div class="row actions">
      ${about.value.write && html`
        <select aria-label="Change" value=${op} disabled=${work.busy} onChange=${e => choose(e.target.value)}>
          <option value="">Change ${ofAll ? 'all that match' : `${number(selected.length)} selected`} …</option>
          ${choices}
        </select>`}
      ${op === 'ttl' && html`<${Seconds} label="Time to live of all" value=${n} unit=${unit}
        onChange=${(value, u) => {
          setN(value);
          setUnit(u);
        }} />`}
      ${op === 'hold' && html`<input class="reason" aria-label="Reason of the holds" placeholder="reason, optional"
        maxlength="1024" value=${reason} onInput=${e => setReason(e.target.value)} />`}
      ${change && ofAll && html`
        <button type="button" disabled=${!ready || work.busy || all} onClick=${() => find(op, by)}>Count</button>`}
      <button type="button" disabled=${work.busy} onClick=${download}>Download${!ofAll && ' selected'}</button>
      ${work.busy && html`<button type="button" onClick=${work.stop}>Stop</button>`}
      <span role="status">${work.state}</span>
    </div>
    ${all && !work.busy && html`
      <p>${count(all.length, 'document')}, ${scope.trim()}. ${all.length > 0 && change.effect(all, values)}</p>
      ${asks && html`<label class="field warn">Type <strong>${name}</strong> to confirm${' '}
        <input autocomplete="off" spellcheck=${false} value=${typed}
          onInput=${e => setTyped(e.target.value)} /></label>`}
      ${all.length > 0 && html`
        <button type="button" class="danger" disabled=${asks && typed !== name} onClick=${run}>
          ${change.title} ${count(all.length, 'document')}</button>`}`}
    <${Fault} error=${work.error} />
    <${Refused} all=${refused} by="id" />
  </div>`;
}
