// Overview: is the database well, and how much happens in it.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {get} from '../api.js';
import {about, asOf, fault, status} from '../state.js';
import {bytes, count, duration, ms, number} from '../format.js';
import {Badge, collections, Fault, lazy, listCollections, Table, Time} from '../parts.js';
import {Line} from '../chart.js';

const behindMuch = 1000; // events that are not folded yet

// reasons are why the database is not as it should be.
function reasons(s) {
  const all = [];
  if (s.clock.suspect)
    all.push(`The clock is suspect, nothing expires and writes are refused: ${s.clock.reason}`);
  if (s.logEnd === 0) all.push('The log does not answer.');
  else if (s.logEnd - s.seq > behindMuch)
    all.push(`This process still has to fold ${number(s.logEnd - s.seq)} events of the log.`);
  const o = s.latenessObjective;
  if (o && !o.kept) {
    const late = `${number(o.late)} of ${number(o.expired)} expiries of the last minute were later than ${ms(o.ms)}`;
    const overdue = `the oldest overdue document is late by ${duration(o.overdueMs / 1000)}`;
    all.push(`The lateness objective is missed: ${o.overdueMs > o.ms ? overdue : late}.`);
  }
  const l = s.storage?.limit;
  if (l && low(l))
    all.push(
      `The log's space is running out: ${bytes(l.leftBytes)} left of ${bytes(l.bytes)}` +
        ` (${limitNames[l.name]})${full(l)}. Give it more, or limit the log with --retain.`,
    );
  return all;
}

const limitNames = {
  log: 'max_bytes of the log',
  mutations: 'max_bytes of the mutations',
  account: 'max_file of the account',
  server: 'max_file_store of the server',
  disk: 'disk',
};

// low is whether a limit of the streams' space needs an operator, as in alerts.
const low = l => l.leftBytes < 0.2 * l.bytes || l.fullInHours < 24;

const full = l => (l.fullInHours === undefined ? '' : `, full in ${duration(3600 * l.fullInHours)}`);

function State() {
  const s = status.value;
  if (fault.value)
    return html`<p class="state"><${Badge} kind="bad">Not ready<//>${' '}${fault.value.message}</p>`;
  if (!s) return html`<p class="loading">Loading…</p>`;
  const why = reasons(s);
  if (why.length === 0)
    return html`<p class="state"><${Badge} kind="good">Ready<//>${' '}lapse ${s.version}, ${s.role}</p>`;
  return html`<ul class="state">${why.map(text => html`<li><${Badge} kind="bad">Attention<//>${' '}${text}</li>`)}
    </ul>`;
}

const Figure = ({name, children, note, kind}) =>
  html`<div class="figure"><dt>${name}</dt><dd class=${kind}>${children}</dd><dd class="faint">${note}</dd></div>`;

function Figures({log}) {
  const s = status.value;
  if (!s) return '';
  const o = s.latenessObjective;
  return html`<dl class="figures ${fault.value ? 'old' : ''}">
    <${Figure} name="Documents" note=${s.held ? `live, ${number(s.held)} held` : 'live'}>${number(s.documents)}<//>
    <${Figure} name="Pending expiry" note="have a deadline">${number(s.pendingExpiry)}<//>
    <${Figure} name="Overdue" note="past it, not yet in the log" kind=${s.overdue ? 'bad' : ''}>${number(s.overdue)}<//>
    <${Figure} name="Lateness, p99" note="p50 ${ms(s.latenessMs.p50)}, max ${ms(s.latenessMs.max)}, last minute">
      ${ms(s.latenessMs.p99)}
      <//>
    ${o &&
      html`<${Figure} name="Objective" note="${number(100 * o.share)} % within ${ms(o.ms)}"
      kind=${o.kept ? 'good' : 'bad'}>
      ${o.kept ? 'kept' : 'missed'}
      <//>`}
    <${Figure} name="Mutations behind" note="published, not yet judged" kind=${s.mutationsBehind ? 'bad' : ''}>
      ${number(s.mutationsBehind)}
      <//>
    <${Figure} name="Last event" note=${html`sequence ${number(s.seq)}`}>
      <span class="when">${s.logTime > 0 ? html`<${Time} ms=${s.logTime} />` : 'none yet'}</span>
      <//>
    ${
      s.storage &&
      html`<${Figure} name="Log size" kind=${s.storage.limit && low(s.storage.limit) ? 'bad' : ''}
      note=${`mutations ${bytes(s.storage.mutationsBytes)}` + (s.storage.limit
        ? `; ${bytes(s.storage.limit.leftBytes)} left (${limitNames[s.storage.limit.name]})${full(s.storage.limit)}`
        : '')}>
        ${bytes(s.storage.logBytes)}
        <//>`
    }
    ${log &&
      html`<${Figure} name="Log begins" note="sequence ${number(log.first)}">
      <span class="when">${log.time ? html`<${Time} ms=${log.time} />` : 'empty'}</span>
      <//>`}
  </dl>`;
}

const leastApart = 2000,
  mostApart = 30000; // ms between two samples

// Charts shows the samples that the console has kept, and the status of now.
function Charts({kept}) {
  const s = status.value,
    now = {at: asOf.value, seq: s.seq, p99: s.latenessMs.p99, overdue: s.overdue};
  const all = now.at - (kept.at(-1)?.at ?? 0) < leastApart ? kept : [...kept, now];
  if (all.length < 2) return '';
  const points = all.flatMap((s, i) => {
    const before = all[i - 1],
      apart = s.at - before?.at;
    return [
      ...(apart > mostApart ? [{at: before.at + 1}] : []),
      {
        ...s,
        rate:
          apart > 0 && apart <= mostApart && s.seq >= before.seq
            ? (1000 * (s.seq - before.seq)) / apart
            : null,
      },
    ]; // null is a gap
  });
  const at = points.map(s => s.at / 1000),
    last = points.at(-1);
  const values = name => [at, points.map(s => s[name] ?? null)];
  return html`<div class="charts">
    <${Line} title="Events per second" last=${number(Math.round(last.rate ?? 0))} data=${values('rate')} />
    <${Line} title="Lateness, p99" last=${ms(last.p99)} data=${values('p99')} show=${ms} />
    <${Line} title="Overdue" last=${number(last.overdue)} data=${values('overdue')} />
  </div>`;
}

function Processes({all}) {
  const newest = Math.max(...all.map(p => p.seq));
  return html`<h2>Processes</h2>
    <${Table} label="Processes"
      head=${[['Process'], ['Role'], ['Version'], ['Sequence', 'n'], ['Behind', 'n'], ['Waiting', 'n'],
      ['Requests', 'n'], ['Errors', 'n'], ['Since']]}>
      ${all.map(
        p => html`<tr key=${p.id}>
        <td><code>${p.id}</code></td><td>${p.role === 'writer' ? html`<strong>writer</strong>` : p.role}</td>
          <td>${p.version}</td>
        <td class="n">${number(p.seq)}</td><td class="n">${number(newest - p.seq)}</td>
          <td class="n">${number(p.waiting)}</td>
        <td class="n">${number(p.requests)}</td><td class="n">${number(p.errors)}</td>
          <td>${p.started && html`<${Time} ms=${Date.parse(p.started)} />`}</td>
          </tr>`,
      )}
    <//>
    ${all.filter(p => p.role === 'writer').length !== 1 && html`<p class="fault">There should be one writer.</p>`}`;
}

// Consumers says who reads the log.
function Consumers({all}) {
  const readers = all.filter(c => c.reader).length,
    lasting = all.filter(c => !c.reader);
  return html`<h2>Who reads the log</h2>
    ${
      lasting.length > 0 &&
      html`<${Table} label="Consumers"
        head=${[['Consumer'], ['Account'], ['Description'], ['Behind', 'n'], ['Unacknowledged', 'n'],
        ['Sequence', 'n'], ['Last acknowledged']]}>
      ${lasting.map(
        c => html`<tr key=${c.name}>
          <td><code>${c.name}</code>
          ${c.paused && html`${' '}<${Badge}>paused<//>`}${c.failures > 0 && html`${' '}
          <${Badge}>event ${c.failing} failed ${count(c.failures, 'time')}<//>`}
          </td><td>${c.account}</td><td>${c.description}</td>
        <td class="n">${number(c.pending)}</td><td class="n">${number(c.unacked)}</td>
          <td class="n">${number(c.seq)}</td>
          <td>${c.lastAck ? html`<${Time} ms=${Date.parse(c.lastAck)} />` : html`<span class="faint">never</span>`}
          </td>
          </tr>`,
      )}
    <//>`
    }
    ${all.length === 0 ? html`<p>Nobody.</p>` : readers > 0 &&
      html`<p class="faint">
      ${count(readers, 'program')} ${readers === 1 ? 'reads'
      : 'read'} for a while, as watch, export and the feeds of this console do.</p>`}`;
}

const Create = lazy(() => import('./collections.js'), 'Create');

const FirstStep =
  () => html`<section><p>There is nothing here yet. Documents are in collections, each with a time to live.</p>
  ${about.value.write ? html`<${Create} />`
    : html`<p>Create one: <code>lapse collection create sessions --default-ttl 30m</code></p>`}
    </section>`;

const every = {processes: 5000, log: 30000, consumers: 10000, samples: 10000}; // ms

export function Overview() {
  const [said, setSaid] = useState({}); // by path
  const [errors, setErrors] = useState({});
  useEffect(() => {
    const abort = new AbortController();
    for (const path of Object.keys(every)) {
      (async () => {
        while (!abort.signal.aborted) {
          try {
            const answer = !document.hidden && (await get(path, abort.signal));
            if (answer) setSaid(all => ({...all, [path]: answer}));
            setErrors(all => ({...all, [path]: null}));
          } catch (e) {
            if (!abort.signal.aborted) setErrors(all => ({...all, [path]: e}));
          }
          await new Promise(done => setTimeout(done, every[path]));
        }
      })();
    }
    return () => abort.abort();
  }, []);
  const empty = status.value?.documents === 0 && collections.value?.length === 0;
  useEffect(() => {
    if (status.value?.documents === 0) listCollections().catch(() => {});
  }, [status.value?.documents === 0]);
  return html`<h1>Overview</h1>
    <${State} />
      ${empty ? html`<${FirstStep} />`
      : html`<${Figures} log=${said.log} />
      ${status.value && said.samples && html`<${Charts} kept=${said.samples.samples} />`}`}
    ${said.processes && html`<${Processes} all=${said.processes.processes} />`}
    ${said.consumers && html`<${Consumers} all=${said.consumers.consumers} />`}
    ${!fault.value && html`<${Fault} error=${Object.values(errors).find(Boolean)} />`}`;
}
