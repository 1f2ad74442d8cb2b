// Overview: is the database well, and how much happens in it.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {get} from '../api.js';
import {about, asOf, clock, fault, status, times} from '../state.js';
import {bytes, count, duration, moment, ms, number} from '../format.js';
import {at, link} from '../route.js';
import {Badge, collections, Fault, lazy, listCollections, Table, Time} from '../parts.js';
import {Hour, Line} from '../chart.js';

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
  if (l && low(l)) {
    const space = `${bytes(l.leftBytes)} left of ${bytes(l.bytes)} (${limitNames[l.name]})${full(l)}`;
    all.push(`The log's space is running out: ${space}. Give it more, or limit the log with --retain.`);
  }
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

const hoursOfYear = 8760;

const full = l => (l.fullInHours < hoursOfYear ? `, full in ${duration(3600 * l.fullInHours)}` : '');

// State is in a line: ready or why not, and how much there is.
function State() {
  const s = status.value;
  if (fault.value) return html`<p class="state"><${Badge} kind="bad">Not ready<//>${' '}${fault.value.message}</p>`;
  if (!s) return html`<p class="loading">Loading…</p>`;
  const why = reasons(s);
  const o = s.latenessObjective;
  const l = s.storage?.limit;
  const parts = [count(s.documents, 'document')];
  if (s.held) parts.push(`${number(s.held)} held`);
  if (s.overdue) parts.push(`${number(s.overdue)} due, not expired yet`);
  parts.push(`p99 ${ms(s.latenessMs.p99)}${o ? ` (≤ ${ms(o.ms)})` : ''}`);
  if (s.storage) parts.push(`log ${bytes(s.storage.logBytes)}${l ? ` of ${bytes(l.bytes)}` : ''}`);
  return html`
    ${why.length > 0 && html`<ul class="state">
      ${why.map(text => html`<li><${Badge} kind="bad">Attention<//>${' '}${text}</li>`)}</ul>`}
    <p class="state">${why.length === 0 && html`<${Badge} kind="good">Ready<//>${' '}`}${parts.join(' · ')}</p>`;
}

const Fact = ({name, children}) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

// Facts are for those who run the database.
function Facts({log}) {
  const s = status.value;
  if (!s) return '';
  const o = s.latenessObjective;
  const l = s.storage?.limit;
  const shown = at => (at ? html`<${Time} ms=${at} />` : 'none yet');
  return html`<dl class="facts ${fault.value ? 'old' : ''}">
    <${Fact} name="Version">${s.version}, ${s.role}<//>
    <${Fact} name="Pending expiry">${number(s.pendingExpiry)}<//>
    <${Fact} name="Waiting for the writer">${number(s.mutationsBehind)}<//>
    <${Fact} name="Lateness, last minute">
      ${`p50 ${ms(s.latenessMs.p50)}, p99 ${ms(s.latenessMs.p99)}, max ${ms(s.latenessMs.max)}`}<//>
    ${o && html`<${Fact} name="Objective">${`${number(100 * o.share)} % within ${ms(o.ms)}: `}
      <span class=${o.kept ? 'good' : 'bad'}>${o.kept ? 'kept' : 'missed'}</span><//>`}
    <${Fact} name="Last event">${shown(s.logTime)}, sequence ${number(s.seq)}<//>
    ${log && html`<${Fact} name="Log begins">${shown(log.time)}, sequence ${number(log.first)}<//>`}
    ${s.storage && html`<${Fact} name="Mutations">${bytes(s.storage.mutationsBytes)}<//>`}
    ${l && html`<${Fact} name="Space left">${`${bytes(l.leftBytes)} (${limitNames[l.name]})${full(l)}`}<//>`}
  </dl>`;
}

const minute = 60;
const hour = 60;

// minutesOf are the expiries of the last hour and those that come due in the next, by the minute.
function minutesOf(kept, outlook) {
  const now = Math.floor(clock() / 1000 / minute);
  const begin = Math.floor(outlook.now / minute);
  const all = Array.from({length: 2 * hour + 1}, (_, i) => {
    const m = now - hour + i;
    const due = m >= now ? (outlook.minutes[m - begin] ?? 0) : null;
    return [m * minute, m <= now ? 0 : null, due];
  });
  for (let i = 1; i < kept.length; i++) {
    const n = kept[i].expired - kept[i - 1].expired; // less after retention
    const at = Math.floor(kept[i].at / 1000 / minute) - now + hour;
    if (n > 0 && at >= 0 && at <= hour) all[at][1] += n;
  }
  return all;
}

// Expiries is the last hour and the next.
function Expiries({kept, outlook}) {
  const minutes = minutesOf(kept, outlook);
  const expired = minutes.reduce((sum, [, n]) => sum + (n ?? 0), 0);
  const {most} = outlook;
  const when = most && moment(most.from * 1000, times.value, clock());
  const short = times.value === 'relative' ? when : when?.slice(11, 16);
  const partly = outlook.forecasted < outlook.withTTL;
  const some = partly ? `, in ${number(outlook.forecasted)} of ${number(outlook.withTTL)} collections` : '';
  const title = `${number(expired)} expired in the last hour, ${number(outlook.due)} come due in the next${some}`;
  return html`<figure class="chart wide"><figcaption>
    <strong>${number(expired)}</strong> <span class="key past">expired in the last hour</span>${' '}
    <strong>${number(outlook.due)}</strong> <span class="key">come due in the next${some}</span>
    ${most && html`: <a href=${at(['documents', most.collection], {from: most.from, until: most.until})}>
      ${number(most.due)} at ${short}</a> in <a href=${link('collections', most.collection)}>${most.collection}</a>`}
    </figcaption>
    <${Hour} minutes=${minutes} title=${title} /></figure>`;
}

const leastApart = 2000; // ms between two samples
const mostApart = 90000;

// rates adds to samples how many writes and expiries there were in a second since the one before;
// null is a gap.
function rates(all) {
  return all.flatMap((s, i) => {
    const before = all[i - 1];
    const apart = s.at - before?.at;
    if (!(apart > 0 && apart <= mostApart && s.seq >= before.seq && s.expired >= before.expired)) {
      return [...(apart > mostApart ? [{at: before.at + 1}] : []), s];
    }
    const expiries = (1000 * (s.expired - before.expired)) / apart;
    return [{...s, expiries, writes: Math.max(0, (1000 * (s.seq - before.seq)) / apart - expiries)}];
  });
}

// Charts shows the samples that the console has kept, and the status of now.
function Charts({kept}) {
  const s = status.value;
  const now = {at: asOf.value, p99: s.latenessMs.p99, overdue: s.overdue};
  const all = rates(kept);
  if (now.at - (kept.at(-1)?.at ?? 0) >= leastApart) all.push({...kept.at(-1), ...now});
  if (all.length < 2) return '';
  const at = all.map(s => s.at / 1000);
  const values = (...names) => [at, ...names.map(name => all.map(s => s[name] ?? null))];
  const most = name => Math.max(...all.map(s => s[name] ?? 0));
  const rate = `${number(Math.round(all.findLast(s => s.writes !== undefined)?.writes ?? 0))} writes`;
  const overdue = 'Due, not expired yet';
  const top = name => `at most ${number(Math.round(most(name)))}`;
  return html`<div class="charts">
    <${Line} title="Events per second, means of 10 s" last=${`${rate}; ${top('writes')}, expiries ${top('expiries')}`}
      data=${values('writes', 'expiries')} names=${['writes', 'expiries']} />
    <${Line} title="Lateness, p99" last=${ms(now.p99)} data=${values('p99')} show=${ms} />
    ${most('overdue') > 0
      ? html`<${Line} title=${overdue} last=${number(now.overdue)} data=${values('overdue')} least=${4} />`
      : html`<figure class="chart">
          <figcaption>${overdue} <strong>none in the last hour</strong></figcaption></figure>`}
  </div>`;
}

function Processes({all}) {
  const newest = Math.max(...all.map(p => p.seq));
  const head = [['Process'], ['Role'], ['Version'], ['Sequence', 'n'], ['Behind', 'n'], ['Waiting', 'n'],
    ['Requests', 'n'], ['Errors', 'n'], ['Since']];
  return html`<h2>Processes</h2>
    <${Table} label="Processes" head=${head}>
      ${all.map(p => html`<tr key=${p.id}>
        <td><code>${p.id}</code></td>
        <td>${p.role === 'writer' ? html`<strong>writer</strong>` : p.role}</td>
        <td>${p.version}</td>
        <td class="n">${number(p.seq)}</td>
        <td class="n">${number(newest - p.seq)}</td>
        <td class="n">${number(p.waiting)}</td>
        <td class="n">${number(p.requests)}</td>
        <td class="n">${number(p.errors)}</td>
        <td>${p.started && html`<${Time} ms=${Date.parse(p.started)} />`}</td></tr>`)}
    <//>
    ${all.filter(p => p.role === 'writer').length !== 1 && html`<p class="fault">There should be one writer.</p>`}`;
}

// Consumers says who reads the log, those that are furthest behind first.
function Consumers({all}) {
  const temporary = all.filter(c => c.reader).length;
  const lasting = all.filter(c => !c.reader).sort((a, b) => b.pending + b.unacked - a.pending - a.unacked);
  const accounts = lasting.some(c => c.account);
  const head = [['Consumer'], ['Behind', 'n'], ['Unacknowledged', 'n'], ['Sequence', 'n'], ['Last acknowledged'],
    ...(accounts ? [['Account']] : []), ['Description', 'wide']];
  return html`<h2>Who reads the log</h2>
    ${lasting.length > 0 && html`<${Table} label="Consumers" head=${head}>
      ${lasting.map(c => html`<tr key=${c.name}>
        <td><code><bdi>${c.name}</bdi></code>
          ${c.paused && html`${' '}<${Badge}>paused<//>`}
          ${c.failures > 0 && html`${' '}<${Badge} kind="bad">
            event ${c.failing} failed ${count(c.failures, 'time')}<//>`}</td>
        <td class="n ${c.unacked > 0 && c.pending > behindMuch ? 'bad' : ''}">${number(c.pending)}</td>
        <td class="n">${number(c.unacked)}</td>
        <td class="n">${number(c.seq)}</td>
        <td>${c.lastAck ? html`<${Time} ms=${Date.parse(c.lastAck)} />` : html`<span class="faint">never</span>`}</td>
        ${accounts && html`<td>${c.account}</td>`}
        <td class="wide"><span class="preview" title=${c.description}><bdi>${c.description}</bdi></span></td></tr>`)}
    <//>`}
    ${all.length === 0 && html`<p>Nobody.</p>`}
    ${temporary > 0 && html`<p class="faint">
      ${count(temporary, 'temporary reader')}: watch, export, feeds of this console.</p>`}`;
}

const Create = lazy(() => import('./collections.js'), 'Create');

const FirstStep = () => html`<section>
  <p>There is nothing here yet. Documents are in collections, each with a time to live.</p>
  ${about.value.write
    ? html`<${Create} />`
    : html`<p>Create one: <code>lapse collection create sessions --default-ttl 30m</code></p>`}</section>`;

const every = {processes: 5000, log: 30000, consumers: 10000, samples: 10000, outlook: 20000}; // ms

export function Overview() {
  const [said, setSaid] = useState({}); // by path
  const [errors, setErrors] = useState({});
  useEffect(() => {
    const abort = new AbortController();
    const ask = async path => {
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
    };
    Object.keys(every).forEach(ask);
    return () => abort.abort();
  }, []);
  const none = status.value?.documents === 0;
  useEffect(() => {
    if (none) listCollections().catch(() => {});
  }, [none]);
  const empty = none && collections.value?.length === 0;
  const kept = said.samples?.samples;
  return html`<h1 class="hidden">Overview</h1>
    <${State} />
    ${empty && html`<${FirstStep} />`}
    ${!empty && kept && said.outlook && html`<${Expiries} kept=${kept} outlook=${said.outlook} />`}
    ${!empty && status.value && kept && html`<${Charts} kept=${kept} />`}
    ${!empty && html`<${Facts} log=${said.log} />`}
    ${said.processes && html`<${Processes} all=${said.processes.processes} />`}
    ${said.consumers && html`<${Consumers} all=${said.consumers.consumers} />`}
    ${!fault.value && html`<${Fault} error=${Object.values(errors).find(Boolean)} />`}`;
}
