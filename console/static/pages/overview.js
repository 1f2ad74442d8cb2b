// Overview: is the database well, and how much happens in it.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {get} from '../api.js';
import {about, fault, samples, status} from '../state.js';
import {bytes, duration, ms, number} from '../format.js';
import {Badge, collections, Fault, lazy, listCollections, Table, Time} from '../parts.js';
import {Line} from '../chart.js';

const behindMuch = 1000; // events that are not folded yet

// reasons are why the database is not as it should be.
function reasons(s) {
  const all = [];
  if (s.clock.suspect) all.push(`The clock is suspect, nothing expires and writes are refused: ${s.clock.reason}`);
  if (s.logEnd === 0) all.push('The log does not answer.');
  else if (s.logEnd - s.seq > behindMuch) all.push(`This process still has to fold ${number(s.logEnd - s.seq)} events of the log.`);
  const o = s.latenessObjective;
  if (o && !o.kept) {
    all.push(o.overdueMs > o.ms ? `The lateness objective is missed: the oldest overdue document is late by ${duration(o.overdueMs / 1000)}.`
      : `The lateness objective is missed: ${number(o.late)} of ${number(o.expired)} expiries of the last minute were later than ${ms(o.ms)}.`);
  }
  const l = s.storage?.limit;
  if (l && low(l)) all.push(`The log's space is running out: ${bytes(l.leftBytes)} left of ${bytes(l.bytes)} (${limitNames[l.name]})${full(l)}. Give it more, or limit the log with --retain.`);
  return all;
}

const limitNames = {log: 'max_bytes of the log', mutations: 'max_bytes of the mutations', account: 'max_file of the account', server: 'max_file_store of the server', disk: 'disk'};

// low is whether a limit of the streams' space needs an operator, as in alerts.
const low = l => l.leftBytes < 0.2 * l.bytes || l.fullInHours < 24;

const full = l => l.fullInHours === undefined ? '' : `, full in ${duration(3600 * l.fullInHours)}`;

function State() {
  const s = status.value;
  if (fault.value) return html`<p class="state"><${Badge} kind="bad">Not ready<//>${' '}${fault.value.message}</p>`;
  if (!s) return html`<p class="loading">Loading…</p>`;
  const why = reasons(s);
  if (why.length === 0) return html`<p class="state"><${Badge} kind="good">Ready<//>${' '}lapse ${s.version}, ${s.role}</p>`;
  return html`<ul class="state">${why.map(text => html`<li><${Badge} kind="bad">Attention<//>${' '}${text}</li>`)}</ul>`;
}

const Figure = ({name, children, note, kind}) => html`<div class="figure"><dt>${name}</dt><dd class=${kind}>${children}</dd><dd class="faint">${note}</dd></div>`;

function Figures({log}) {
  const s = status.value;
  if (!s) return '';
  const o = s.latenessObjective;
  return html`<dl class="figures ${fault.value ? 'old' : ''}">
    <${Figure} name="Documents" note=${s.held ? `live, ${number(s.held)} held` : 'live'}>${number(s.documents)}<//>
    <${Figure} name="Pending expiry" note="have a deadline">${number(s.pendingExpiry)}<//>
    <${Figure} name="Overdue" note="past it, not yet in the log" kind=${s.overdue ? 'bad' : ''}>${number(s.overdue)}<//>
    <${Figure} name="Lateness, p99" note="p50 ${ms(s.latenessMs.p50)}, max ${ms(s.latenessMs.max)}, last minute">${ms(s.latenessMs.p99)}<//>
    ${o && html`<${Figure} name="Objective" note="${number(100 * o.share)} % within ${ms(o.ms)}" kind=${o.kept ? 'good' : 'bad'}>${o.kept ? 'kept' : 'missed'}<//>`}
    <${Figure} name="Mutations behind" note="published, not yet judged" kind=${s.mutationsBehind ? 'bad' : ''}>${number(s.mutationsBehind)}<//>
    <${Figure} name="Last event" note=${html`sequence ${number(s.seq)}`}><span class="when">${s.logTime > 0 ? html`<${Time} ms=${s.logTime} />` : 'none yet'}</span><//>
    ${s.storage && html`<${Figure} name="Log size" kind=${s.storage.limit && low(s.storage.limit) ? 'bad' : ''}
      note=${s.storage.limit ? `${bytes(s.storage.limit.leftBytes)} left (${limitNames[s.storage.limit.name]})${full(s.storage.limit)}` : ''}>${bytes(s.storage.logBytes)}<//>`}
    ${log && html`<${Figure} name="Log begins" note="sequence ${number(log.first)}"><span class="when">${log.time ? html`<${Time} ms=${log.time} />` : 'empty'}</span><//>`}
  </dl>`;
}

function Charts() {
  const all = samples.value;
  if (all.length < 2) return '';
  const at = all.map(s => s.at), last = all.at(-1);
  const values = name => [at, all.map(s => s[name])];
  return html`<div class="charts">
    <${Line} title="Events per second" last=${number(Math.round(last.rate ?? 0))} data=${values('rate')} />
    <${Line} title="Lateness, p99" last=${ms(last.p99)} data=${values('p99')} show=${ms} />
    <${Line} title="Overdue" last=${number(last.overdue)} data=${values('overdue')} />
  </div>`;
}

function Processes({all}) {
  const newest = Math.max(...all.map(p => p.seq));
  return html`<h2>Processes</h2>
    <${Table} label="Processes" head=${[['Process'], ['Role'], ['Version'], ['Sequence', 'n'], ['Behind', 'n'], ['Waiting', 'n'], ['Requests', 'n'], ['Errors', 'n'], ['Since']]}>
      ${all.map(p => html`<tr key=${p.id}>
        <td><code>${p.id}</code></td><td>${p.role === 'writer' ? html`<strong>writer</strong>` : p.role}</td><td>${p.version}</td>
        <td class="n">${number(p.seq)}</td><td class="n">${number(newest - p.seq)}</td><td class="n">${number(p.waiting)}</td>
        <td class="n">${number(p.requests)}</td><td class="n">${number(p.errors)}</td><td>${p.started && html`<${Time} ms=${Date.parse(p.started)} />`}</td></tr>`)}
    <//>
    ${all.filter(p => p.role === 'writer').length !== 1 && html`<p class="fault">There should be one writer.</p>`}`;
}

const Create = lazy(() => import('./collections.js'), 'Create');

const FirstStep = () => html`<section><p>There is nothing here yet. Documents are in collections, each with a time to live.</p>
  ${about.value.write ? html`<${Create} />` : html`<p>Create one: <code>lapse collection create sessions --ttl 30m</code></p>`}</section>`;

const processesEvery = 5000, logEvery = 30000;

export function Overview() {
  const [processes, setProcesses] = useState(null);
  const [log, setLog] = useState(null);
  const [errors, setErrors] = useState({}); // by path
  useEffect(() => {
    const abort = new AbortController();
    const every = async (path, wait, take) => {
      const setError = error => setErrors(all => ({...all, [path]: error}));
      while (!abort.signal.aborted) {
        try {
          if (!document.hidden) take(await get(path, abort.signal));
          setError(null);
        } catch (e) {
          if (!abort.signal.aborted) setError(e);
        }
        await new Promise(done => setTimeout(done, wait));
      }
    };
    every('processes', processesEvery, said => setProcesses(said.processes));
    every('log', logEvery, setLog);
    return () => abort.abort();
  }, []);
  const empty = status.value?.documents === 0 && collections.value?.length === 0;
  useEffect(() => { if (status.value?.documents === 0) listCollections().catch(() => {}); }, [status.value?.documents === 0]);
  return html`<h1>Overview</h1>
    <${State} />${empty ? html`<${FirstStep} />` : html`<${Figures} log=${log} /><${Charts} />`}
    ${processes && html`<${Processes} all=${processes} />`}
    ${!fault.value && html`<${Fault} error=${errors.processes ?? errors.log} />`}`;
}
