// Many documents at once: all that match a query, or those that are selected. They are counted
// first, and each is changed only in the version that was counted.
import {html, useEffect, useRef, useState} from './vendor/libraries.js';
import {call} from './api.js';
import {about, clock} from './state.js';
import {count, duration, number} from './format.js';
import {content, elements, member} from './json.js';
import {Fault, Seconds, secondsOf, Table} from './parts.js';

const pageSize = 1000,
  batchSize = 200,
  mostShown = 100,
  mostUnasked = 100;

// pages yields the replies to a query, whose request is made of what is added to it.
async function* pages(name, request, signal) {
  let cursor;
  do {
    const text = await call('query', {
      collection: name,
      signal,
      body: request({limit: pageSize, ...(cursor && {cursor: JSON.stringify(cursor)})}),
    });
    yield text;
    cursor = JSON.parse(member(text, 'cursor') ?? 'null');
  } while (cursor);
}

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

// useWork is a task that takes long, can be stopped, and says how far it is.
export function useWork() {
  const [busy, setBusy] = useState(false);
  const [state, say] = useState('');
  const [error, setError] = useState(null);
  const running = useRef(null);
  const stop = () => running.current?.abort();
  useEffect(() => stop, []);
  const start = async task => {
    const {signal} = (running.current = new AbortController());
    setBusy(true);
    setError(null);
    say('…');
    try {
      await task(signal);
    } catch (fault) {
      if (!signal.aborted) setError(fault);
      say('');
    }
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
  for (let i = 0; i < operations.length && !signal.aborted; i += batchSize) {
    const part = operations.slice(i, i + batchSize);
    const {results} = JSON.parse(await call('batch', {collection: name, body: {operations: part}}));
    results.forEach(({code, body}, j) =>
      code < 300
        ? n++
        : refused.push([
            part[j].id,
            code === 412 ? 'It has changed since it was counted.' : (body?.message ?? `code ${code}`),
          ]),
    );
    say(far() + ' …');
  }
  say(far() + (signal.aborted ? ', stopped' : ''));
  return refused;
}

// Refused lists what was refused, by what, and why.
export const Refused = ({all, by}) =>
  all.length > 0 &&
  html`<p>${number(all.length)} refused:</p><${Table} label="Refused" head=${[[by], ['Why']]}>
  ${all.slice(0,
    mostShown).map(([what, why]) => html`<tr key=${what}><td class="id"><bdi>${what}</bdi></td><td>${why}</td></tr>`)}
    <//>
  ${all.length > mostShown && html`<p class="faint">The first ${mostShown} are shown.</p>`}`;

export function Many({name, request, selected, onDone}) {
  const [op, setOp] = useState('delete');
  const [n, setN] = useState(null);
  const [unit, setUnit] = useState('hours');
  const [reason, setReason] = useState('');
  const [found, setFound] = useState(null); // what would be changed
  const [typed, setTyped] = useState('');
  const [refused, setRefused] = useState([]);
  const work = useWork();
  const change = changes[op],
    values = {seconds: secondsOf(n, unit), reason};
  const ready = op !== 'ttl' || (values.seconds >= 1 && Number.isInteger(values.seconds));

  const find = () =>
    work.start(async signal => {
      let all = selected;
      if (all.length === 0) {
        all = [];
        for await (const text of pages(
          name,
          more =>
            request({...more, select: ['/id', '/_etag'], deadlines: true, ...(change.held && {held: true})}),
          signal,
        )) {
          all.push(
            ...JSON.parse(text).documents.map(({id, _etag, _deadline}) => ({
              id,
              etag: _etag,
              deadline: _deadline,
            })),
          );
          work.say(`${count(all.length, 'document')} found …`);
        }
      }
      setFound(all);
      setRefused([]);
      setTyped('');
      work.say('');
    });
  const run = () =>
    work.start(async signal => {
      const body = change.body?.(values);
      setRefused(
        await changeAll(
          name,
          found.map(({id, etag}) => ({op: change.op ?? op, id, ifMatch: etag, ...(body && {body})})),
          change.done,
          work,
          signal,
        ),
      );
      setFound(null);
      onDone();
    });
  const download = () =>
    work.start(async signal => {
      const parts = [];
      let all = 0;
      for await (const text of pages(name, request, signal)) {
        const documents = elements(member(text, 'documents'));
        parts.push(new Blob(documents.map(text => content(text) + '\n'))); // the browser keeps it on disk
        work.say(`${count((all += documents.length), 'document')} read …`);
      }
      save(parts, `${name}.ndjson`);
      work.say(`${count(all, 'document')} downloaded`);
    });
  const asks = found && change.ask && found.length > mostUnasked;
  return html`<details class="card">
    <summary>
    ${selected.length > 0 ? count(selected.length, 'selected document')
    : 'All that match'}: change or download</summary>
    <div class="row actions">
      ${
        about.value.write &&
        html`
        <select aria-label="Change" value=${op} onChange=${e => {
          setOp(e.target.value);
          setFound(null);
          work.say('');
        }}>${Object.entries(changes).map(([value, {title}]) => html`<option value=${value}>${title}</option>`)}</select>
        ${
          op === 'ttl' &&
          html`<${Seconds} label="Time to live of all" value=${n} unit=${unit} onChange=${(value, u) => {
            setN(value);
            setUnit(u);
          }} />`
        }
        ${op === 'hold' &&
          html`<input class="reason" aria-label="Reason of the holds" placeholder="reason, optional" maxlength="1024"
          value=${reason} onInput=${e => setReason(e.target.value)} />`}
        <button type="button" disabled=${!ready || work.busy} onClick=${find}>Count</button>`
      }
      <button type="button" disabled=${work.busy} onClick=${download}>Download as NDJSON</button>
      ${work.busy && html`<button type="button" onClick=${work.stop}>Stop</button>`}
      <span role="status">${work.state}</span></div>
    ${
      found &&
      !work.busy &&
      html`<p>${count(found.length, 'document')}. ${found.length > 0 && change.effect(found, values)}</p>
      ${asks &&
        html`<label class="field warn">Type <strong>${name}
        </strong> to confirm <input autocomplete="off" spellcheck=${false} value=${typed}
        onInput=${e => setTyped(e.target.value)} />
        </label>`}
      ${found.length > 0 &&
        html`<button type="button" class="danger" disabled=${asks && typed !== name} onClick=${run}>
        ${change.title} ${count(found.length, 'document')}
        </button>`}`
    }
    <${Fault} error=${work.error} />
    <${Refused} all=${refused} by="id" />
  </details>`;
}
